package headgate

import (
	"context"
	"net/http"
	"net/http/httptest"
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
