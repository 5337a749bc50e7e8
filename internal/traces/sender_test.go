package traces

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/tests/tracestest"
)

// inBubble lets a Tracer run in a bubble, where no socket can be: what it would send by one goes
// straight to the collector, as the same bytes.
func inBubble(t *testing.T, by func(*http.Request) (*http.Response, error)) (*rig, http.Handler) {
	g := begin(t, Config{Endpoint: "http://collector" + tracestest.Path, Sample: 1}, &tracestest.Collector{})
	g.sender.to.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if res, err := by(r); res != nil || err != nil {
			return res, err
		}
		w := httptest.NewRecorder()
		g.Collector.ServeHTTP(w, r)
		return w.Result(), nil
	})
	return g, g.Request("shop", http.HandlerFunc(origin))
}

// Nothing is lost while a collector is away for half a minute, and the log says it once.
func TestACollectorThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		var tries atomic.Int64
		g, h := inBubble(t, func(*http.Request) (*http.Response, error) {
			if tries.Add(1); !back.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return nil, nil
		})
		for range 25 {
			ask(h, stranger)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n, _ := g.Totals(); n != (Totals{}) {
			t.Errorf("%+v", n)
		}
		if n := tries.Load(); n < 3 || n > 8 {
			t.Errorf("%d tries in 25 s", n)
		}
		back.Store(true)
		time.Sleep(lastWait + 2*sendEvery)
		synctest.Wait()
		if n := len(g.Spans()); n != 25 {
			t.Errorf("%d of 25 spans", n)
		}
		said := g.log.String()
		if strings.Count(said, "does not take traces") != 1 ||
			strings.Count(said, "takes traces again") != 1 || !strings.Contains(said, "connection refused") {
			t.Errorf("the log says %s", said)
		}
		g.stop()
	})
}

// One that stays away costs what fits into the queue, a few tries a minute and a line in the log.
func TestACollectorThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		g, h := inBubble(t, func(*http.Request) (*http.Response, error) {
			tries.Add(1)
			return nil, errors.New("no route")
		})
		for range 600 {
			for range 20 {
				ask(h, stranger)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		n, _ := g.Totals()
		if n.Sent != 0 || n.Full+n.Refused < 12_000-maxQueued-maxBatch {
			t.Errorf("%+v of 12,000", n)
		}
		if n := tries.Load(); n > 200 {
			t.Errorf("%d tries in 10 minutes", n)
		}
		if said := g.log.String(); strings.Count(said, "level=") != 1 {
			t.Errorf("the log says %s", said)
		}
		g.stop()
		if n, _ := g.Totals(); n.Full+n.Refused+n.Ended != 12_000 {
			t.Errorf("not all is counted: %+v", n)
		}
	})
}

// 503 with Retry-After is heeded; a batch that is refused for good takes no other with it.
func TestACollectorThatIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codes, began := []int{503, 429, 400}, time.Now()
		var at []time.Duration
		g, h := inBubble(t, func(*http.Request) (*http.Response, error) {
			at = append(at, time.Since(began))
			if len(codes) == 0 {
				return nil, nil
			}
			w := httptest.NewRecorder()
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(codes[0])
			codes = codes[1:]
			return w.Result(), nil
		})
		ask(h, stranger)
		time.Sleep(time.Minute)
		ask(h, stranger)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, _ := g.Totals(); n != (Totals{Sent: 1, Refused: 1}) {
			t.Errorf("%+v", n)
		}
		if len(at) != 4 || at[1]-at[0] != 9*time.Second || at[2]-at[1] != 9*time.Second {
			t.Errorf("asked at %v", at)
		}
		g.stop()
	})
}

// One that comes and goes does not fill the log.
func TestACollectorThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		g, h := inBubble(t, func(*http.Request) (*http.Response, error) {
			if n++; n%2 == 0 {
				return nil, nil
			}
			return nil, errors.New("broken")
		})
		for range 600 {
			ask(h, stranger)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if said := strings.Count(g.log.String(), "level=WARN"); said < 2 || said > 10 {
			t.Errorf("%d warnings in 10 minutes", said)
		}
		if lines := strings.Count(g.log.String(), "\n"); lines > 20 {
			t.Errorf("%d lines in 10 minutes", lines)
		}
		g.stop()
	})
}

// What is on its way when the process ends arrives once: broken off and sent again it would come
// twice.
func TestTheEndBreaksNothingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *rig
		var h http.Handler
		g, h = inBubble(t, func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			g.Collector.ServeHTTP(w, r)
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(flushFor / 2):
				return w.Result(), nil
			}
		})
		ask(h, stranger)
		time.Sleep(sendEvery + time.Millisecond) // on its way
		g.stop()
		if n, _ := g.Totals(); len(g.Spans()) != 1 || n != (Totals{Sent: 1}) {
			t.Errorf("%d spans came of one; %+v", len(g.Spans()), n)
		}
	})
}

// A collector that says nothing holds up the end for so long and no longer.
func TestTheEndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, h := inBubble(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		for range 3 * maxBatch {
			ask(h, stranger)
		}
		time.Sleep(sendEvery + time.Millisecond)
		began := time.Now()
		g.stop()
		if took := time.Since(began); took > flushFor+time.Second {
			t.Errorf("the end took %v", took)
		}
		if n, _ := g.Totals(); n != (Totals{Ended: 3 * maxBatch}) {
			t.Errorf("%+v", n)
		}
	})
}
