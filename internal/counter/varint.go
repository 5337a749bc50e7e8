package counter

import (
	"encoding/binary"
	"fmt"

	"github.com/headgate/headgate/slot"
)

func appendUints(b []byte, vs ...uint64) []byte {
	for _, v := range vs {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func appendInts(b []byte, vs ...int64) []byte {
	for _, v := range vs {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func flag(yes bool, bit uint64) uint64 {
	if yes {
		return bit
	}
	return 0
}

func errDamaged() error { return fmt.Errorf("%w: damaged", slot.ErrMessage) }

// reader reads until the first fault; after it everything reads as zero.
type reader struct {
	b   []byte
	bad bool
}

// newReader reads the number that every message begins with.
func newReader(b []byte) (reader, error) {
	d := reader{b: b}
	v := d.uint()
	if d.bad {
		return d, errDamaged()
	}
	if v != wireFormat {
		return d, fmt.Errorf("%w: format %d, this program reads %d: "+
			"upgrade the older program first", slot.ErrMessage, v, wireFormat)
	}
	return d, nil
}

// took goes on by the n bytes of a number; none or fewer are a fault.
func (d *reader) took(n int) {
	if n <= 0 {
		d.b, d.bad = nil, true
		return
	}
	d.b = d.b[n:]
}

func (d *reader) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.took(n); d.bad {
		return 0
	}
	return v
}

func (d *reader) int() int64 {
	v, n := binary.Varint(d.b)
	if d.took(n); d.bad {
		return 0
	}
	return v
}

// text reads the name of a lane.
func (d *reader) text() string {
	n := d.uint()
	if n > slot.MostName || n > uint64(len(d.b)) {
		d.took(0)
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// count reads how many requests or replies follow, each of at least one byte.
func (d *reader) count() int {
	n := d.uint()
	if n > mostRequests || n > uint64(len(d.b)) {
		d.took(0)
		return 0
	}
	return int(n)
}

// end says what is wrong with the message, if anything is: the whole of it must have
// been read.
func (d *reader) end() error {
	if d.bad || len(d.b) > 0 {
		return errDamaged()
	}
	return nil
}
