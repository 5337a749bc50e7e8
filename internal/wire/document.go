package wire

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// A Second holds a value that is computed again when it is a second old. The zero value is ready,
// and many goroutines may use it at once.
type Second[T any] struct{ made atomic.Pointer[madeAt[T]] }

type madeAt[T any] struct {
	at    time.Duration
	value T
}

// Get returns the value at clk. It calls fresh for a new one if the value is a second old.
func (s *Second[T]) Get(clk time.Duration, fresh func() T) T {
	m := s.made.Load()
	if m == nil || clk-m.at >= time.Second {
		m = &madeAt[T]{clk, fresh()}
		s.made.Store(m)
	}
	return m.value
}

// Forget makes the next Get compute the value again.
func (s *Second[T]) Forget() { s.made.Store(nil) }

// Shared header values. They are assigned to headers and never changed.
var (
	jsonType = []string{"application/json"}
	aSecond  = []string{"public, max-age=1"}
)

// ServeShared answers with JSON that is the same for all clients and at most a second old, so that
// a cache in front can answer a large crowd.
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
	w.Write(b) // net/http sets the length of short answers
}
