package usage

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/wire"
)

// Bounds of what holders read. Chosen: a page of a customer needs one answer, and reading takes no more
// than a part of the processors and of the disk, whatever all holders ask for.
const (
	ownEach  = 2 * time.Second // between two answers for a holder
	ownFor   = 3 * time.Second // of reading; then the answer is a part, with the cursor for the rest
	ownTurns = 2               // answers at the same time
	ownCells = 1 << 12
)

// A HolderServer lets holders of keys read what they have used themselves.
type HolderServer struct {
	keeper *Keeper
	turns  chan struct{}
	seed   maphash.Seed
	began  time.Time
	until  [ownCells]atomic.Int64 // ns since began, by the hash of a holder: a few share one
}

// NewHolderServer returns a HolderServer.
func NewHolderServer(k *Keeper) *HolderServer {
	return &HolderServer{keeper: k, turns: make(chan struct{}, ownTurns), seed: maphash.MakeSeed(),
		began: time.Now()}
}

// mayAsk reports whether a holder may ask now, and if so, makes the next answer wait.
func (o *HolderServer) mayAsk(holder string) bool {
	cell := &o.until[maphash.String(o.seed, holder)%ownCells]
	now := int64(time.Since(o.began))
	until := cell.Load()
	return now >= until && cell.CompareAndSwap(until, now+int64(ownEach))
}

// ServeHolder answers a request of a holder, who was verified, about a limit that counts by holder. reads
// reports whether a limit is one.
func (o *HolderServer) ServeHolder(
	w http.ResponseWriter, r *http.Request, holder string, reads func(limit string) bool,
) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		wire.WriteProblem(w, r, http.StatusMethodNotAllowed, "Use GET.")
		return
	}
	v, err := url.ParseQuery(r.URL.RawQuery)
	for name, all := range v {
		if name == "key" || name == "format" || len(all) > 1 {
			err = errors.Join(err, &ParameterError{"", "a parameter is not possible here, or is there twice",
				"use limit, per, from, to, cursor, count and open, each once"})
		}
	}
	var q *Request
	if err == nil {
		q, err = ParseRequest(v, "json", time.Now())
	}
	switch {
	case err != nil:
		wire.WriteProblem(w, r, http.StatusBadRequest, "The query is not valid: "+err.Error()+".")
		return
	case !reads(q.Limit):
		wire.WriteProblem(w, r, http.StatusNotFound, "Nothing is recorded for you under this name.")
		return
	}
	if !o.mayAsk(holder) {
		busy(w, r)
		return
	}
	q.Key = &holder
	var a wholeAnswer
	switch ok, err := o.read(r.Context(), &a, q); {
	case !ok:
		busy(w, r)
	case errors.Is(err, ErrGone):
		wire.WriteProblem(w, r, http.StatusGone, "This cursor is too old: rows after it were deleted. Send from.")
	case err != nil:
		o.keeper.cfg.Log.Warn("a holder could not read usage", "error", err)
		wire.WriteProblem(w, r, http.StatusServiceUnavailable, "The usage cannot be read now. Try again later.")
	default:
		maps.Copy(w.Header(), a.header)
		_, _ = w.Write(a.body.Bytes()) // the holder may be gone
	}
}

// read reads an answer, unless others are being read. The turn ends before the answer is sent: a client that
// takes its time must not keep the others waiting.
func (o *HolderServer) read(ctx context.Context, a *wholeAnswer, q *Request) (ok bool, err error) {
	select {
	case o.turns <- struct{}{}:
		defer func() { <-o.turns }()
	default:
		return false, nil
	}
	q.whole = true
	ctx, stop := context.WithTimeout(ctx, ownFor)
	defer stop()
	return true, o.keeper.Serve(ctx, a, q, "json")
}

func busy(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", strconv.Itoa(int(ownEach/time.Second)))
	wire.WriteProblem(w, r, http.StatusTooManyRequests, "Ask again in some seconds.")
}

// A wholeAnswer is an answer of at most mostRows rows before it is sent.
type wholeAnswer struct {
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *wholeAnswer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// Write implements http.ResponseWriter.
func (a *wholeAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }

// WriteHeader implements http.ResponseWriter.
func (a *wholeAnswer) WriteHeader(int) {}
