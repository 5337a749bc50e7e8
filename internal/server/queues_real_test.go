//go:build real

package server

import (
	"fmt"
	"strings"
	"testing"
)

// Which of the nodes of a cluster is asked to put a job again does not matter to the answer.
func TestADuplicateIsToldByEachNodeOfACluster(t *testing.T) {
	t.Parallel()
	target := newSink(t)
	all := nodes(t, shop+"queues:\n  - {name: one, target: {url: '"+target.URL+"'}}\n", "n1", "n2")
	var host *process
	eventually(t, "a host", func() bool {
		for _, p := range all {
			if p.queue("one").Hosted() {
				host = p
			}
		}
		return host != nil
	})
	key := func(i int) string { return fmt.Sprintf(`{"key":"key %d","text":"%d"}`, i, i) }
	for i, p := range all {
		first := p.posts("application/json", key(i))
		if !strings.Contains(first, `"duplicate":false`) {
			t.Fatalf("n%d, hosts %v: %s", i+1, p == host, first)
		}
		again := strings.Replace(first, "false", "true", 1)
		for n, q := range all {
			if got := q.posts("application/json", key(i)); got != again {
				t.Errorf("put at n%d and again at n%d, hosts %v: %s, want %s", i+1, n+1, q == host, got, again)
			}
		}
	}
	for n, p := range all {
		got := p.posts("application/x-ndjson", key(0)+"\n"+key(10+n)+"\n"+key(1)+"\n"+key(10+n))
		if !strings.Contains(got, `"put":1,"duplicates":3,`) {
			t.Errorf("many at n%d, hosts %v: %s, want one that is new", n+1, p == host, got)
		}
	}
	eventually(t, "each is delivered", func() bool { return target.got() == "0 1 10 11" })
}
