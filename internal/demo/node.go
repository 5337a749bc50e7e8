package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A standing is how one node fares.
type standing int

const (
	down     standing = iota // there is no process
	starting                 // it takes no visitors yet
	up
)

// How a node is looked at. Chosen: a balancer's interval, quickened for who watches,
// and longer than a node needs to find out that nobody leads the records (2 s).
const (
	lookEvery   = 200 * time.Millisecond
	lookTimeout = time.Second
	tellTimeout = 3 * time.Second
)

// A node is one of the processes that are one room. It may be used by many
// goroutines at once.
type node struct {
	name      string
	gate      *gate
	transport *http.Transport // for visitors
	admin     *http.Client

	mu    sync.Mutex
	life  int // counts the starts: what was seen of an earlier one is not of now
	says  saying
	ready bool
	since time.Time // when it came or went
}

// A saying is what a node says of itself and the others.
type saying struct {
	hosts  bool   // it hosts the room
	leader string // of the records, "" unknown
}

// launch starts the node and does not wait for it.
func (n *node) launch() error {
	n.forget()
	_, err := n.gate.launch()
	return err
}

// kill ends the node as a power failure would.
func (n *node) kill() error {
	n.forget()
	err := n.gate.kill()
	n.forget() // what was being looked at is over as well
	return err
}

func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life++
	n.ready, n.says, n.since = false, saying{}, time.Now()
}

// stands says how the node fares.
func (n *node) stands() standing {
	is, _, _ := n.now()
	return is
}

// now is how the node fares, since when, and what it said last: nothing if it is not
// up.
func (n *node) now() (is standing, since time.Time, s saying) {
	runs := n.gate.runs()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !runs:
		return down, n.since, saying{}
	case !n.ready:
		return starting, n.since, saying{}
	}
	return up, n.since, n.says
}

// look asks the node again and again, until ctx is done.
func (n *node) look(ctx context.Context) error {
	for {
		n.mu.Lock()
		life := n.life
		n.mu.Unlock()
		_, err := n.ask(ctx, "/readyz", lookTimeout)
		n.saw(life, func() { n.becomes(err == nil) })
		if err == nil {
			s, err := n.tell(ctx)
			n.saw(life, func() {
				if err == nil {
					n.says = s
				}
			})
		}
		if !rest(ctx, lookEvery) {
			n.admin.CloseIdleConnections()
			return nil
		}
	}
}

// saw notes what was seen of a life, if that is not over.
func (n *node) saw(life int, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if life == n.life {
		f()
	}
}

// becomes notes whether the node takes visitors. Its caller holds mu.
func (n *node) becomes(ready bool) {
	if ready != n.ready {
		n.ready, n.since, n.says = ready, time.Now(), saying{}
	}
}

// tell asks the node who hosts the room and who leads. Of hosting it is believed for
// itself alone: the others hear of it a moment later.
func (n *node) tell(ctx context.Context) (saying, error) {
	text, err := n.ask(ctx, "/v1/cluster", tellTimeout)
	if err != nil {
		return saying{}, err
	}
	var body struct {
		Leader string `json:"leader"`
		Nodes  []struct {
			Name  string   `json:"name"`
			Rooms []string `json:"rooms"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return saying{}, err
	}
	s := saying{leader: body.Leader}
	for _, other := range body.Nodes {
		s.hosts = s.hosts || other.Name == n.name && slices.Contains(other.Rooms, roomName)
	}
	return s, nil
}

// ask makes a request to the node's address for operators.
func (n *node) ask(ctx context.Context, path string, within time.Duration) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.gate.admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := n.admin.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s of %s: %s", path, n.name, resp.Status)
	}
	return text, err
}
