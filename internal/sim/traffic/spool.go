package traffic

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// A visit is a visitor as stored in the spool.
type visit struct {
	at, dwell time.Duration
	site      int32
}

// visitSize is that of a visit: two times and a site.
const visitSize = 8 + 8 + 4

// spoolBuffer is the size of one write. Chosen: a multiple of a page.
const spoolBuffer = visitSize << 12

// A space is the file that the spool writes to.
type space interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// temporary creates a file that disappears with the process, however it ends.
func temporary() (space, error) {
	f, err := os.CreateTemp("", "headgate-traffic-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("hide the temporary file: %w", err), f.Close())
	}
	return f, nil
}

// A spool is a list of visits. Visits are appended, and may be changed later.
type spool struct {
	space  space
	n      int64
	from   int64  // the first visit in buffer
	buffer []byte // what is not written yet
	one    [visitSize]byte
}

func newSpool(open func() (space, error)) (*spool, error) {
	if open == nil {
		open = temporary
	}
	s, err := open()
	if err != nil {
		return nil, err
	}
	return &spool{space: s, buffer: make([]byte, 0, spoolBuffer)}, nil
}

func (s *spool) close() error { return s.space.Close() }

func (v visit) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(v.at))
	b = binary.LittleEndian.AppendUint64(b, uint64(v.dwell))
	return binary.LittleEndian.AppendUint32(b, uint32(v.site))
}

func visitOf(b []byte) visit {
	return visit{
		at:    time.Duration(binary.LittleEndian.Uint64(b)),
		dwell: time.Duration(binary.LittleEndian.Uint64(b[8:])),
		site:  int32(binary.LittleEndian.Uint32(b[16:])),
	}
}

// add appends a visit and returns its number.
func (s *spool) add(v visit) (int64, error) {
	if len(s.buffer) == cap(s.buffer) {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	s.buffer = v.append(s.buffer)
	s.n++
	return s.n - 1, nil
}

func (s *spool) flush() error {
	if _, err := s.space.WriteAt(s.buffer, s.from*visitSize); err != nil {
		return fmt.Errorf("write the temporary file: %w", err)
	}
	s.from, s.buffer = s.n, s.buffer[:0]
	return nil
}

// setAt changes the start of a visit.
func (s *spool) setAt(i int64, at time.Duration) error { return s.set(i, 0, at) }

// setDwell changes the length of a visit.
func (s *spool) setDwell(i int64, dwell time.Duration) error { return s.set(i, 8, dwell) }

func (s *spool) set(i, field int64, d time.Duration) error {
	if i >= s.from {
		binary.LittleEndian.PutUint64(s.buffer[(i-s.from)*visitSize+field:], uint64(d))
		return nil
	}
	b := s.one[:8]
	binary.LittleEndian.PutUint64(b, uint64(d))
	if _, err := s.space.WriteAt(b, i*visitSize+field); err != nil {
		return fmt.Errorf("write the temporary file: %w", err)
	}
	return nil
}

// each calls yield for every visit in order, until it returns false. All must
// have been flushed.
func (s *spool) each(yield func(visit) bool) error {
	r := bufio.NewReaderSize(io.NewSectionReader(s.space, 0, s.n*visitSize), spoolBuffer)
	b := make([]byte, visitSize)
	for range s.n {
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("read the temporary file: %w", err)
		}
		if !yield(visitOf(b)) {
			return nil
		}
	}
	return nil
}
