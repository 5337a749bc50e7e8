package demo

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
)

// nodeHeader names the node through which a request reached the shop. The balancer writes it.
const nodeHeader = "Demo-Node"

var errNobody = errors.New("no node takes visitors")

// A balancer sends requests to the nodes that are ready for visitors, in turn. A visitor inside
// therefore meets another node with each click, which shows that all nodes are one room. A balancer
// may be used by many goroutines at once.
type balancer struct {
	nodes []*node
	turn  atomic.Uint64
}

// RoundTrip sends a request to the next node. If it cannot connect to that node, the node has seen
// nothing of the request, and the node after it gets it.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	first := int(b.turn.Add(1) % uint64(len(b.nodes)))
	err := errNobody
	for _, n := range slices.Concat(b.nodes[first:], b.nodes[:first]) {
		if n.stands() != up {
			continue
		}
		var resp *http.Response
		if resp, err = n.RoundTrip(r); err == nil {
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
