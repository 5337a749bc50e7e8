package headgate

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A discard is a ResponseWriter that keeps nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

func benchRoom(b testing.TB, n int64) (*Room, http.Handler) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	r, err := OpenRoom(ctx, RoomConfig{
		Name: "shop", TotalActiveUsers: n, NewUsersPerMinute: n, SessionDuration: time.Hour,
	})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	b.Cleanup(func() { stop(); <-done })
	return r, r.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func benchVisitor(b testing.TB, h http.Handler) *http.Request {
	b.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept", "text/html")
	benchLoad(h, r)
	benchLoad(h, r) // the cookie comes back
	return r
}

// benchLoad sends a request, and does what a browser does with the answer's cookie.
func benchLoad(h http.Handler, r *http.Request) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		r.Header.Set("Cookie", c.Name+"="+c.Value)
	}
}

// What is known of a request stays on the stack; only a page may keep its View.
func TestAllocationsOfAVisitor(t *testing.T) {
	w := &discard{http.Header{}}
	_, h := benchRoom(t, 1)
	inside, waits := benchVisitor(t, h), benchVisitor(t, h)
	benchLoad(h, inside) // its renewal is confirmed meanwhile
	waits.Header.Set(PollHeader, "1")
	for _, tt := range []struct {
		who  string
		r    *http.Request
		most float64
	}{{"who is inside", inside, 1}, {"who waits", waits, 4}} {
		if testing.Short() { // the race detector empties pools at random
			tt.most += 3
		}
		if n := testing.AllocsPerRun(200, func() { h.ServeHTTP(w, tt.r) }); n > tt.most {
			t.Errorf("%s: %v allocations a request, want %v", tt.who, n, tt.most)
		}
	}
}

// BenchmarkPassCheck measures the check of a pass alone: open the cookie, check the time, check
// whether the session was revoked.
func BenchmarkPassCheck(b *testing.B) {
	room, h := benchRoom(b, 1000)
	req := benchVisitor(b, h)
	q := &visitRequest{f: room.face.Load(), r: req}
	b.ReportAllocs()
	for b.Loop() {
		q.has = false
		room.open(q)
		_, hi, life, _ := room.worker.clock.Bounds()
		if !q.has || life != q.tok.Life || hi >= slot.Time(q.tok.End) {
			b.Fatal("refused")
		}
	}
}

// BenchmarkPassWithRenewal measures everything that a request with a pass costs in addition to its
// handler, including the renewal.
func BenchmarkPassWithRenewal(b *testing.B) {
	_, h := benchRoom(b, 1000)
	req := benchVisitor(b, h)
	w := &discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, req)
	}
}

// BenchmarkPoll measures the JSON poll of a waiting visitor, without HTTP.
func BenchmarkPoll(b *testing.B) {
	_, h := benchRoom(b, 1)
	benchVisitor(b, h)
	req := benchVisitor(b, h)
	req.Header.Set(PollHeader, "1")
	w := &discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, req)
	}
}

// However many visitors wait, a room at 500 new users a minute writes its record at most twenty
// times a second.
func TestARoomAt500AMinuteWritesAtMostTwentyTimesASecond(t *testing.T) {
	for name, waiting := range map[string]int{"a few": 700, "many": 3000} {
		bubble(t, name, func(t *testing.T) {
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 500, NewUsersPerMinute: 500, SessionDuration: 30 * time.Second,
			})
			if testing.Short() && waiting > 1000 {
				return // the same in make all
			}
			g.h = g.room.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "origin")
			}))
			var crowd sync.WaitGroup
			t.Cleanup(crowd.Wait)
			over := time.Now().Add(3*time.Minute + time.Second)
			for range waiting {
				crowd.Go(func() { // a visitor who comes again and again
					for time.Now().Before(over) {
						v := g.visitor()
						v.in()
						v.until(time.Until(over))
						for range 6 { // stays half a minute, then leaves
							v.in()
							time.Sleep(5 * time.Second)
						}
					}
				})
			}
			time.Sleep(2 * time.Minute)
			before := g.room.Status()
			time.Sleep(time.Minute)
			after := g.room.Status()
			writes := float64(after.Totals.Writes-before.Totals.Writes) / 60
			entered := after.Totals.Admitted - before.Totals.Admitted
			t.Logf("%.1f writes a second, %d let in, %d wait", writes, entered, after.WaitingUsers)
			if writes > 20 || entered < 480 || entered > 510 {
				t.Errorf("%.1f writes a second while %d were let in in a minute", writes, entered)
			}
		})
	}
}
