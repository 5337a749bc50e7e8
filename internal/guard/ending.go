package guard

import (
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// again is how often EndBody asks whether a body must end. Chosen: somebody waits for that.
const again = time.Second

// EndBody returns a copy of r whose body goes on for wait, and after that for as long as over is
// false. Then its reader gets os.ErrDeadlineExceeded, also one that waits for the client at that
// moment. stop must be called before the handler of r returns.
func EndBody(
	w http.ResponseWriter, r *http.Request, wait time.Duration, over func() bool,
) (inner *http.Request, stop func()) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r, func() {}
	}
	b := &ending{ReadCloser: r.Body}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look = time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.done {
			return
		}
		// Again each time: a reader that was just about to read has set a later deadline.
		if b.over = b.over || over(); b.over {
			http.NewResponseController(w).SetReadDeadline(time.Now())
		}
		b.look.Reset(again)
	})
	return withBody(r, b), b.stop
}

// An ending is a body that may be ended.
type ending struct {
	io.ReadCloser
	mu   sync.Mutex // guards all below
	look *time.Timer
	over bool // nothing more is read
	done bool // read to its end, or answered: the connection may be at its next request
}

func (b *ending) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = true
	b.look.Stop()
}

func (b *ending) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// Read reads on unless the body is over.
func (b *ending) Read(p []byte) (int, error) {
	if b.ended() {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.stop()
	case err == nil && b.ended():
		err = os.ErrDeadlineExceeded
	}
	return n, err
}
