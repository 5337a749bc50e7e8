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

// A standing is the state of one node.
type standing int

const (
	down     standing = iota // no process
	starting                 // not yet ready for visitors
	up
)

// These constants define how a node is checked. Chosen: faster than the usual interval of a
// balancer, so that changes show soon, and longer than a node needs to detect that nobody leads the
// records (2 s).
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
	life  int // number of starts; results of an earlier one are stale
	says  saying
	ready bool
	since time.Time // when it started or ended
}

// A saying is what a node reports about itself and the others.
type saying struct {
	hosts  bool   // it hosts the room
	leader string // of the records, "" unknown
}

// RoundTrip sends a visitor's request to the node, and names the node to the shop.
func (n *node) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	if out.Host == "" {
		out.Host = r.URL.Host
	}
	out.URL.Host = n.gate.visitors
	out.Header[nodeHeader] = []string{n.name}
	return n.transport.RoundTrip(out)
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
	n.forget() // stops the polls of the ended process
	return err
}

func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life++
	n.ready, n.says, n.since = false, saying{}, time.Now()
}

// stands returns the state of the node.
func (n *node) stands() standing {
	is, _, _ := n.now()
	return is
}

// now returns the state of the node, since when it holds, and the last report of the node. The
// report is empty if the node is not up.
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

// look polls the node until ctx is done.
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

// saw runs f, which records a result, unless that life of the node is over.
func (n *node) saw(life int, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if life == n.life {
		f()
	}
}

// becomes records whether the node is ready for visitors. The caller holds mu.
func (n *node) becomes(ready bool) {
	if ready != n.ready {
		n.ready, n.since, n.says = ready, time.Now(), saying{}
	}
}

// tell requests who hosts the room and who leads. It trusts a node only about its own hosting,
// because the others learn of a change a moment later.
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

// ask sends a request to the node's admin address.
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
