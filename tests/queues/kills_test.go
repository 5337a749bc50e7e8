//go:build kills

package queues

import (
	"flag"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// jobs flow while the process is killed.
var jobs = flag.Int("jobs", 100_000, "how many jobs flow")

const (
	limit       = 5000
	concurrency = 64
	group       = 4096 // outcomes that may wait to be written (queue: noteRoom)
)

// A target counts what it gets, as the service behind a queue does.
type target struct {
	mu  sync.Mutex
	got map[string]int
	at  []time.Time
}

func (g *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	b, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.got[string(b)]++
	g.at = append(g.at, at)
}

func (g *target) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.got)
}

func TestNothingIsLostWhenTheProcessIsKilled(t *testing.T) {
	g := &target{got: map[string]int{}}
	server := httptest.NewServer(g)
	defer server.Close()
	p := build(t, limit, "    target: {url: "+server.URL+"}\n    min_backoff: 100ms\n")
	p.start()

	// A producer puts a thousand at a time, again and again until it is answered, somewhat
	// faster than they go out.
	var puts sync.WaitGroup
	retried := 0
	puts.Go(func() {
		pace := time.NewTicker(time.Second * 1000 / limit * 8 / 10)
		defer pace.Stop()
		for from := 0; from < *jobs; from += 1000 {
			<-pace.C
			for p.put(from, min(from+1000, *jobs)) != nil {
				retried++
				<-time.After(20 * time.Millisecond)
			}
		}
	})
	var killed []time.Time
	begin := time.Now()
	for g.count() < *jobs {
		if time.Since(begin) > 10*time.Minute {
			t.Fatalf("%d of %d have arrived after %v", g.count(), *jobs, time.Since(begin))
		}
		select {
		case <-time.After(2*time.Second + rand.N(3*time.Second)):
		case <-t.Context().Done():
		}
		if g.count() >= *jobs {
			break
		}
		p.kill()
		killed = append(killed, time.Now())
		p.start()
	}
	kills := len(killed)
	puts.Wait()
	wait(t, "an empty queue", 30*time.Second, func() bool {
		s := p.status()
		return s.Name != "" && s.Depth == 0
	})

	g.mu.Lock()
	defer g.mu.Unlock()
	repeats := len(g.at) - len(g.got)
	t.Logf("%d jobs over %d kills in %v: %d deliveries, %d repeated, puts sent again %d times",
		*jobs, kills, time.Since(begin).Round(time.Second), len(g.at), repeats, retried)
	if most := kills * (concurrency + group); repeats > most {
		t.Errorf("%d were repeated, want %d at most", repeats, most)
	}
	if kills < 3 {
		t.Errorf("only %d kills", kills)
	}
	slices.SortFunc(g.at, time.Time.Compare)
	worst := 0
	from := 0
	for i, at := range g.at {
		for at.Sub(g.at[from]) >= time.Second {
			from++
		}
		if n := i - from + 1; n > worst {
			if worst = n; worst > limit {
				t.Logf("%d from %v to %v; kills at %v", n, g.at[from], at, killed)
			}
		}
	}
	t.Logf("the target's worst second: %d of %d", worst, limit)
	if worst > limit {
		t.Errorf("the target has counted %d in a second, want %d at most", worst, limit)
	}
}
