package analytics

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"os"

	"github.com/headgate/headgate/internal/codec"
)

// A log holds the minutes of a day as they arrive. After the header it has a frame for each minute,
// with length and CRC-32C. A frame holds the minute, then the rows. A row has the number of its
// series, with kind and name at the first occurrence in this log, and the values.
const (
	logHead  = "headgate-minutes"
	dayHead  = "headgate-columns"
	format   = 1
	idSize   = 8
	headSize = len(logHead) + 1 + idSize
	mostName = 256
	mostBody = 1 << 20
	mostRows = 1 << 20 // series of a file
)

// A fileError describes what is wrong with a file.
type fileError struct {
	file string
	what string
}

func (e *fileError) Error() string { return fmt.Sprintf("analytics file %s: %s", e.file, e.what) }

var errNewer = errors.New("a newer headgate wrote it")

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// A minuteLog is the log that is written to.
type minuteLog struct {
	f       *os.File
	size    int64
	id      [idSize]byte
	numbers map[Series]uint64
	frames  int // since the last sync
}

// openLog opens a log to continue it, and cuts off a torn end of cut bytes.
func openLog(path string) (l *minuteLog, cut int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, err
	}
	l = &minuteLog{f: f, numbers: map[Series]uint64{}}
	if cut, err = l.begin(path); err != nil {
		f.Close()
		return nil, 0, err
	}
	return l, cut, nil
}

// begin reads an existing log and cuts off what a kill has left at its end. It returns the number
// of bytes cut off.
func (l *minuteLog) begin(path string) (cut int64, err error) {
	b, err := io.ReadAll(l.f)
	if err != nil {
		return 0, err
	}
	if len(b) < headSize { // the process died while creating it
		head := append([]byte(logHead), format)
		rand.Read(l.id[:])
		head = append(head, l.id[:]...)
		l.size = int64(len(head))
		_, err = l.f.WriteAt(head, 0)
		return 0, err
	}
	x := &logReader{b: b, file: path}
	x.skip()
	if x.err != nil {
		return 0, x.err
	}
	for n, s := range x.names {
		l.numbers[s] = uint64(n)
	}
	l.size, l.id = x.good, x.id
	if cut = int64(len(b)) - x.good; cut > 0 {
		err = l.f.Truncate(x.good)
	}
	return cut, err
}

// append writes a minute. It undoes an incomplete write.
func (l *minuteLog) append(minute int64, all []seriesRow) error {
	p := make([]byte, 8, 4096)
	p = codec.AppendUint(p, uint64(minute))
	fresh := map[Series]uint64{}
	var body []byte
	for i := range all {
		n, known := l.numbers[all[i].Series]
		if !known {
			n = uint64(len(l.numbers) + len(fresh))
			fresh[all[i].Series] = n
		}
		p = codec.AppendUint(p, n)
		if !known {
			p = append(p, byte(all[i].Kind))
			p = codec.AppendText(p, all[i].Name)
		}
		body = appendBody(body[:0], &all[i].Row)
		p = codec.AppendText(p, body)
	}
	binary.LittleEndian.PutUint32(p, uint32(len(p)-8))
	binary.LittleEndian.PutUint32(p[4:], crc(p[8:]))
	if _, err := l.f.WriteAt(p, l.size); err != nil {
		return errors.Join(err, l.f.Truncate(l.size))
	}
	l.size += int64(len(p))
	maps.Copy(l.numbers, fresh)
	if l.frames++; l.frames >= syncEvery {
		l.frames = 0
		return l.f.Sync()
	}
	return nil
}

// syncEvery is how many minutes are written between two syncs of a log. Chosen: losing a few
// minutes of a chart does not matter, and a sync wakes a disk.
const syncEvery = 10

func (l *minuteLog) close() error { return errors.Join(l.f.Sync(), l.f.Close()) }

type seriesRow struct {
	Series
	Row
}

// A logReader reads the frames of a log.
type logReader struct {
	b     []byte
	file  string
	id    [idSize]byte
	good  int64 // everything before it is intact
	names []Series
	err   error // damaged in the middle, or not a log

	minute int64
	rest   *reader
}

// next reads the next frame. It returns false at the end, and at a torn end.
func (x *logReader) next() bool {
	if x.good == 0 && !x.head() {
		return false
	}
	left := x.b[x.good:]
	if len(left) < 8 {
		return false
	}
	n := int64(binary.LittleEndian.Uint32(left))
	switch {
	case n == 0, n > int64(len(left))-8, crc(left[8:8+n]) != binary.LittleEndian.Uint32(left[4:]):
		if goesOn(left[1:]) {
			x.err = &fileError{x.file, fmt.Sprintf("damaged at byte %d", x.good)}
		}
		return false
	}
	x.rest = newReader(left[8 : 8+n])
	x.minute = int64(x.rest.most(1 << 40))
	x.good += 8 + n
	return true
}

// goesOn reports whether b contains an intact frame. Then what precedes it is not a torn end.
func goesOn(b []byte) bool {
	for ; len(b) > 8; b = b[1:] {
		n := int(binary.LittleEndian.Uint32(b))
		if n > 0 && n <= len(b)-8 && n < mostBody && crc(b[8:8+n]) == binary.LittleEndian.Uint32(b[4:]) {
			return true
		}
	}
	return false
}

// skip reads to the end and learns the names.
func (x *logReader) skip() {
	for x.next() {
		for range x.rows() {
		}
	}
}

// rows iterates over the rows of the frame: the number of a series, and its bytes.
func (x *logReader) rows() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for {
			if n, body, ok := x.row(); !ok || !yield(n, body) {
				return
			}
		}
	}
}

func (x *logReader) head() bool {
	switch {
	case len(x.b) < headSize:
		return false
	case string(x.b[:len(logHead)]) != logHead:
		x.err = &fileError{x.file, "it is not an analytics log"}
		return false
	case x.b[len(logHead)] != format:
		x.err = fmt.Errorf("%s: %w", x.file, errNewer)
		return false
	}
	copy(x.id[:], x.b[len(logHead)+1:])
	x.good = int64(headSize)
	return true
}

// row reads the next row of the frame: the number of its series, and its bytes.
func (x *logReader) row() (number int, body []byte, ok bool) {
	if x.rest.Len() == 0 {
		return 0, nil, false
	}
	number = x.rest.most(uint64(len(x.names)))
	if number == len(x.names) {
		s := Series{Kind(x.rest.Byte()), x.rest.Text(mostName)}
		if x.rest.Bad() || len(x.names) >= mostRows {
			x.fail()
			return 0, nil, false
		}
		x.names = append(x.names, s)
	}
	body = x.rest.Bytes(mostBody)
	if x.rest.Bad() {
		x.fail()
		return 0, nil, false
	}
	return number, body, true
}

// fail records a frame that is intact but invalid.
func (x *logReader) fail() {
	x.rest.Fail()
	x.err = &fileError{x.file, fmt.Sprintf("damaged before byte %d", x.good)}
}
