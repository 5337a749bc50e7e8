package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// room is the name of the one room of all runs.
const room = "shop"

// A node is a headgate, its configuration and its addresses.
type node struct {
	*process
	config        string // the file
	public, admin string
}

func storeNodes() []string { return []string{"n1", "n2", "n3"} }

// get finds a node by its name.
func (st *stage) get(name string) *node {
	st.t.Helper()
	st.mu.Lock()
	defer st.mu.Unlock()
	all := slices.Concat(st.nodes, st.nats)
	i := slices.IndexFunc(all, func(n *node) bool { return n.name == name })
	if i < 0 {
		st.t.Fatalf("there is no node %q", name)
	}
	return all[i]
}

// A picture is what a node says of its cluster: GET /v1/cluster.
type picture struct {
	Nodes []struct {
		Name  string   `json:"name"`
		Store bool     `json:"store"`
		Alive bool     `json:"alive"`
		Rooms []string `json:"rooms"` // it hosts
	} `json:"nodes"`
	Leader string `json:"leader"` // of the store
}

// host is the node that the picture names as the room's, "" if none.
func (p *picture) host() string {
	for _, n := range p.Nodes {
		if n.Alive && slices.Contains(n.Rooms, room) {
			return n.Name
		}
	}
	return ""
}

// settled is how long a cluster may take to have a host and a leader. Chosen: an
// election takes 4 to 9 s (docs/design.md §4).
const settled = 15 * time.Second

// roles asks the nodes that run until one names the room's host and the leader of
// the store.
func (st *stage) roles() (host, leader string) {
	st.t.Helper()
	var last error
	for end := time.Now().Add(settled); time.Now().Before(end); st.rest(100 * time.Millisecond) {
		for _, n := range st.nodes {
			if !n.runs() {
				continue
			}
			var p picture
			if err := st.ask(n, http.MethodGet, "/v1/cluster", "", "", &p); err != nil {
				last = err
				continue
			}
			if host = p.host(); host != "" && p.Leader != "" {
				return host, p.Leader
			}
			last = fmt.Errorf("%s says %+v", n.name, p)
		}
	}
	st.t.Fatalf("no node named the host of %s and the leader within %v: %v", room, settled, last)
	return "", ""
}

// ask makes a request to the admin address of a node and reads JSON.
func (st *stage) ask(n *node, method, path, token, body string, into any) error {
	text, err := st.answer(n, method, path, token, body)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s %s at %s: %w: %.200s", method, path, n.name, err, text)
	}
	return nil
}

// answer makes a request to the admin address of a node and gives what it answers.
func (st *stage) answer(n *node, method, path, token, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(st.t.Context(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.admin+path,
		strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := st.api.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return text, err
}

// view is what a node says of the room and the cluster, as it says it.
func (st *stage) view(n *node) string {
	var text strings.Builder
	text.WriteString(n.name + " at the end")
	for _, path := range []string{"/v1/rooms/" + room, "/v1/cluster"} {
		var said json.RawMessage
		if err := st.ask(n, http.MethodGet, path, "", "", &said); err != nil {
			said = json.RawMessage(err.Error())
		}
		fmt.Fprintf(&text, "\n%s %s", path, said)
	}
	return text.String()
}

// A told is what a node says of the limits of the room.
type told struct {
	Total     int `json:"total_active_users"`
	PerMinute int `json:"new_users_per_minute"`
}

// change sets the limits at one node, and returns how long it took until all
// that run say so.
func (st *stage) change(at string, s step) time.Duration {
	st.t.Helper()
	n := st.get(at)
	token := n.token()
	s.at = st.clock()
	body := fmt.Sprintf(`{"total_active_users": %d, "new_users_per_minute": %d}`, s.total, s.perMinute)
	var now told
	if err := st.ask(n, http.MethodPatch, "/v1/rooms/"+room, token, body, &now); err != nil {
		st.t.Fatal(err)
	}
	if last := st.steps[len(st.steps)-1]; s.total < last.total { // the old ones held until now
		s.at = st.clock()
	}
	st.steps = append(st.steps, s)
	began, want := time.Now(), told{s.total, s.perMinute}
	for {
		var others []string
		for _, n := range st.nodes {
			if !n.runs() {
				continue
			}
			var now told
			err := st.ask(n, http.MethodGet, "/v1/rooms/"+room, "", "", &now)
			if err != nil || now != want {
				others = append(others, fmt.Sprintf("%s %+v %v", n.name, now, err))
			}
		}
		took := time.Since(began)
		if len(others) == 0 {
			return took
		}
		if took > 2*within {
			st.t.Errorf("%v after %+v was set at %s: %v", took, want, at, others)
			return took
		}
		st.rest(50 * time.Millisecond)
	}
}

// A cutHow is how the links of a node are cut.
type cutHow int

const (
	whole    cutHow = iota
	closed          // connections are closed, and new ones at once
	silenced        // nothing goes through, as if the cable were out
)

// A pair is two data centers, in order of their names.
type pair [2]string

func between(a, b string) pair { return pair{min(a, b), max(a, b)} }

func (p pair) String() string { return p[0] + "-" + p[1] }
