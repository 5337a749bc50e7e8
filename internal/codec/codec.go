// Package codec reads and writes the numbers and texts of records and messages. The packages that
// own the formats define what a number means and which bounds it has.
package codec

import "encoding/binary"

// AppendUint appends numbers as varints.
func AppendUint(b []byte, vs ...uint64) []byte {
	for _, v := range vs {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// AppendInt appends numbers that may be negative as zigzag varints.
func AppendInt(b []byte, vs ...int64) []byte {
	for _, v := range vs {
		b = binary.AppendVarint(b, v)
	}
	return b
}

// AppendFixed appends numbers of 8 bytes each, the lowest byte first.
func AppendFixed(b []byte, vs ...uint64) []byte {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// AppendText appends the length of s as a varint, and then s.
func AppendText[T ~string | ~[]byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Bit returns 1 for true and 0 for false.
func Bit(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}

// A Reader takes numbers and texts off the front of a byte slice. It never panics, and allocates
// only the strings that it returns. It remembers the first fault: after it no bytes are left, and
// every read returns zero.
type Reader struct {
	b   []byte
	bad bool
}

// NewReader returns a Reader of b. The Reader and the results of Bytes and Take refer to b.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Fail marks the bytes as faulty.
func (r *Reader) Fail() { r.b, r.bad = nil, true }

// Bad reports whether there was a fault.
func (r *Reader) Bad() bool { return r.bad }

// Len returns the number of unread bytes. It is 0 after a fault.
func (r *Reader) Len() int { return len(r.b) }

// Done reports whether all bytes have been read, without a fault.
func (r *Reader) Done() bool { return !r.bad && len(r.b) == 0 }

// Rest takes all unread bytes without copying them.
func (r *Reader) Rest() []byte {
	b := r.b
	r.b = nil
	return b
}

// Take takes n bytes without copying them.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.Fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// Byte takes one byte.
func (r *Reader) Byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// Uint takes a number that AppendUint has written.
func (r *Reader) Uint() uint64 {
	v, shift := uint64(0), 0
	for i, c := range r.b {
		if i == binary.MaxVarintLen64-1 && c > 1 { // more than 64 bits
			break
		}
		if c < 0x80 {
			r.b = r.b[i+1:]
			return v | uint64(c)<<shift
		}
		v |= uint64(c&0x7f) << shift
		shift += 7
	}
	r.Fail()
	return 0
}

// Int takes a number that AppendInt has written.
func (r *Reader) Int() int64 {
	v := r.Uint()
	return int64(v>>1) ^ -int64(v&1)
}

// Fixed takes a number that AppendFixed has written.
func (r *Reader) Fixed() uint64 {
	if b := r.Take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// UpTo takes a number that AppendUint has written. A number above most is a fault.
func (r *Reader) UpTo(most uint64) uint64 {
	v := r.Uint()
	if v > most {
		r.Fail()
		return 0
	}
	return v
}

// Count takes the length of a list that AppendUint has written. Each entry has at least one byte.
// So a count above most, or above the number of unread bytes, is a fault: damaged bytes cannot make
// the reader allocate all memory.
func (r *Reader) Count(most int) int { return r.count(r.Uint(), most) }

// CountInt is Count for a length that AppendInt has written.
func (r *Reader) CountInt(most int) int { return r.count(uint64(r.Int()), most) }

func (r *Reader) count(n uint64, most int) int {
	if n > uint64(most) || n > uint64(len(r.b)) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Bytes takes what AppendText has written, without copying it. More than most bytes are a fault.
func (r *Reader) Bytes(most int) []byte { return r.Take(r.Count(most)) }

// Text takes a text that AppendText has written. More than most bytes are a fault.
func (r *Reader) Text(most int) string { return string(r.Bytes(most)) }
