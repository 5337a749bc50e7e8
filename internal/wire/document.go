package wire

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// A Second holds a value that is made anew when it is a second old. The zero value is ready, for
// many goroutines at once.
type Second[T any] struct{ made atomic.Pointer[madeAt[T]] }

type madeAt[T any] struct {
	at    time.Duration
	value T
}

// Get is the value at clk, made anew by fresh if it is a second old.
func (s *Second[T]) Get(clk time.Duration, fresh func() T) T {
	m := s.made.Load()
	if m == nil || clk-m.at >= time.Second {
		m = &madeAt[T]{clk, fresh()}
		s.made.Store(m)
	}
	return m.value
}

// Forget makes the next value anew.
func (s *Second[T]) Forget() { s.made.Store(nil) }

// Shared header values: assigned, never changed.
var (
	jsonType = []string{"application/json"}
	aSecond  = []string{"public, max-age=1"}
)

// ServeShared answers with JSON that is the same for everyone and at most a second old, so that a
// cache in front can answer a whole crowd.
func ServeShared(w http.ResponseWriter, r *http.Request, body func() []byte) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	b, h := body(), w.Header()
	h["Content-Type"], h["Cache-Control"] = jsonType, aSecond
	if r.Method == http.MethodHead {
		h["Content-Length"] = []string{strconv.Itoa(len(b))}
		return
	}
	w.Write(b) // net/http tells the length of what is as short as this
}
