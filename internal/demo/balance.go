package demo

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
)

// nodeHeader tells the shop through which node a request came. The balancer writes it.
const nodeHeader = "Demo-Node"

var errNobody = errors.New("no node takes visitors")

// A balancer sends each request to one of the nodes that say they take visitors, in
// turn: whoever is inside meets another node with each click, for it is one room. It
// may be used by many goroutines at once.
type balancer struct {
	nodes []*node
	turn  atomic.Uint64
}

// RoundTrip sends a request to the next node. If that cannot be reached, so that it
// has seen nothing of the request, the one after it gets it.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	first := int(b.turn.Add(1) % uint64(len(b.nodes)))
	err := errNobody
	for _, n := range slices.Concat(b.nodes[first:], b.nodes[:first]) {
		if n.stands() != up {
			continue
		}
		out := r.Clone(r.Context())
		if out.Host == "" {
			out.Host = r.URL.Host
		}
		out.URL.Host = n.gate.visitors
		out.Header[nodeHeader] = []string{n.name}
		var resp *http.Response
		if resp, err = n.transport.RoundTrip(out); err == nil {
			return resp, nil
		}
		op, ok := errors.AsType[*net.OpError](err)
		if !ok || op.Op != "dial" || r.Body != nil && r.Body != http.NoBody {
			return nil, err
		}
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, err
}
