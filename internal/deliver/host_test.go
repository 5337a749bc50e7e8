package deliver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/queue"
)

type outcomes struct {
	next queue.Handler
	all  chan queue.Outcome
}

func (h *outcomes) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	o := h.next.Deliver(ctx, j)
	h.all <- o
	return o
}

// A host that is cut off while the connection to the target opens sends nothing: another host may have
// canceled the job, or sent it. Later the job goes, and the attempt that was not made does not count.
func TestNothingIsSentByAHostThatMayBeReplaced(t *testing.T) {
	var attempts []string
	var mu sync.Mutex
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, r.Header.Get(attemptHeader))
	})
	dials, opens := make(chan struct{}), make(chan struct{})
	var once sync.Once
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		once.Do(func() { close(dials); <-opens })
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	next := open(t, Target{URL: s.URL, Dial: dial})
	engine, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	var isCutOff atomic.Bool
	var hours atomic.Int64
	h := &outcomes{next, make(chan queue.Outcome, 100)}
	q, err := queue.Open(t.Context(), queue.Config{Name: "orders", NATS: engine.Conn(), Node: "n1",
		Handler: h, Concurrency: 1, Boot: func() time.Duration {
			if isCutOff.Load() {
				return time.Duration(hours.Add(1)) * time.Hour // each write is too old at once
			}
			return 0
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := q.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	put, err := q.Put(ctx, []queue.Job{{Body: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	<-dials
	isCutOff.Store(true)
	close(opens)
	if o := <-h.all; !errors.Is(o.Err, queue.ErrNotSent) {
		t.Errorf("%+v, want %v", o, queue.ErrNotSent)
	}
	isCutOff.Store(false)
	job, err := q.Job(ctx, queue.JobName{ID: put[0].ID}, time.Hour)
	if err != nil || job.State != queue.StateDelivered || job.Attempts != 1 || len(job.Tries) != 1 {
		t.Errorf("%+v %v", job, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(attempts) != 1 || attempts[0] != "1" {
		t.Errorf("the target received the attempts %v, want one", attempts)
	}
}
