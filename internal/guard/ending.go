package guard

import (
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// again is how often EndBody checks whether a body must end. Chosen: others wait for the end.
const again = time.Second

// EndBody returns a copy of r whose body can be read for the time wait, and after that for as long
// as over returns false. Then its reader gets os.ErrDeadlineExceeded, even if it is waiting for the
// client at that moment. stop must be called before the handler of r returns.
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
		// Set the deadline each time: a reader that was about to read may have set a later one.
		if b.over = b.over || over(); b.over {
			http.NewResponseController(w).SetReadDeadline(time.Now())
		}
		b.look.Reset(again)
	})
	return withBody(r, b), b.stop
}

// An ending is a body that can be ended.
type ending struct {
	io.ReadCloser
	mu   sync.Mutex // guards the fields below
	look *time.Timer
	over bool // nothing more is read
	done bool // fully read, or answered: the connection may serve its next request
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

// Read reads from the body unless it has been ended.
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
