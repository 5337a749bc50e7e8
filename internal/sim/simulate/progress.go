package simulate

import (
	"fmt"
	"io"
	"time"
)

// A teller shows progress on a terminal, in one line.
type teller struct {
	w    io.Writer
	on   bool
	last time.Time
}

// of returns a function that shows the progress of one task. A done of 0 means unknown.
func (t *teller) of(what string) func(done float64) {
	return func(done float64) {
		const often = 100 * time.Millisecond // chosen: a line that stays readable
		if now := time.Now(); t.on && now.Sub(t.last) >= often {
			t.last = now
			fmt.Fprintf(t.w, "\r\x1b[K%s  %.0f %%", what, 100*done)
		}
	}
}

// clear removes the line.
func (t *teller) clear() {
	if t.on && !t.last.IsZero() {
		fmt.Fprint(t.w, "\r\x1b[K")
		t.last = time.Time{}
	}
}
