package virtual

import (
	"bufio"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"os"
	"sync"
	"testing"
	"time"
)

// A story is what has happened in a bubble: its messages, with their times.
type story struct {
	mu    sync.Mutex
	sum   hash.Hash64
	lines int
	file  *bufio.Writer
}

// current is the story of the bubble that runs.
var current *story //nolint:gochecknoglobals // one bubble runs at a time, see bubble

// Note adds something that happens now to the history of the bubble.
func Note(what string, data []byte) {
	s := current
	if s == nil { // a network outside of bubbles
		return
	}
	line := fmt.Sprintf("%d %s %q\n", time.Now().UnixNano(), what, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines++
	s.sum.Write([]byte(line))
	if s.file != nil {
		io.WriteString(s.file, line)
	}
}

// record begins a story, and returns what ends it and logs its sum: bubbles with the same sum had
// the same history. The variable HISTORY names a file for it, to see where two of them part.
func record(t *testing.T) (end func()) {
	t.Helper()
	s := &story{sum: fnv.New64a()}
	var file *os.File
	if name := os.Getenv("HISTORY"); name != "" {
		var err error
		if file, err = os.Create(name); err != nil {
			t.Fatal(err)
		}
		s.file = bufio.NewWriter(file)
	}
	current = s
	return func() {
		t.Helper()
		current = nil
		fmt.Fprint(s.sum, t.Failed())
		t.Logf("history %016x of %d messages", s.sum.Sum64(), s.lines)
		if file == nil {
			return
		}
		err := s.file.Flush()
		if end := file.Close(); err == nil {
			err = end
		}
		if err != nil {
			t.Error(err)
		}
	}
}
