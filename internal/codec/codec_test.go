package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	b := AppendUint(nil, 0, 127, 128, math.MaxUint64)
	b = AppendInt(b, 0, -1, 63, 64, -65, math.MinInt64, math.MaxInt64)
	b = AppendFixed(b, 1<<63|1)
	b = append(AppendText(AppendText(b, "text"), []byte("bytes")), 7)
	b = append(AppendInt(AppendUint(b, 2, Bit(true)), 1), "rest"...)

	r := NewReader(b)
	for _, want := range []uint64{0, 127, 128, math.MaxUint64} {
		if got := r.Uint(); got != want {
			t.Errorf("Uint: %d, want %d", got, want)
		}
	}
	for _, want := range []int64{0, -1, 63, 64, -65, math.MinInt64, math.MaxInt64} {
		if got := r.Int(); got != want {
			t.Errorf("Int: %d, want %d", got, want)
		}
	}
	if got := r.Fixed(); got != 1<<63|1 {
		t.Errorf("Fixed: %x", got)
	}
	if got := r.Text(4); got != "text" {
		t.Errorf("Text: %q", got)
	}
	if got := r.Bytes(5); string(got) != "bytes" || cap(got) != 5 {
		t.Errorf("Bytes: %q with room for %d: an append would overwrite what follows", got, cap(got))
	}
	if got := r.Byte(); got != 7 {
		t.Errorf("Byte: %d", got)
	}
	if a, c, d := r.UpTo(2), r.Count(1), r.CountInt(1); a != 2 || c != 1 || d != 1 {
		t.Errorf("UpTo: %d, Count: %d, CountInt: %d", a, c, d)
	}
	if got := r.Rest(); string(got) != "rest" || !r.Done() {
		t.Errorf("Rest: %q, done: %v", got, r.Done())
	}
}

func TestFaultsStay(t *testing.T) {
	long := bytes.Repeat([]byte{0xff}, 11)
	for name, tt := range map[string]struct {
		b    []byte
		read func(r *Reader) bool // whether it read anything other than zero
	}{
		"no byte":             {nil, func(r *Reader) bool { return r.Byte() != 0 }},
		"no number":           {nil, func(r *Reader) bool { return r.Uint() != 0 }},
		"half a number":       {[]byte{0x80}, func(r *Reader) bool { return r.Int() != 0 }},
		"number of 11 bytes":  {long, func(r *Reader) bool { return r.Uint() != 0 }},
		"number of 65 bits":   {append(long[:9:9], 2), func(r *Reader) bool { return r.Uint() != 0 }},
		"fixed of 7 bytes":    {long[:7], func(r *Reader) bool { return r.Fixed() != 0 }},
		"number above bound":  {[]byte{3, 1}, func(r *Reader) bool { return r.UpTo(2) != 0 }},
		"count above bound":   {[]byte{3, 1, 1, 1}, func(r *Reader) bool { return r.Count(2) != 0 }},
		"count above what is": {[]byte{3, 1, 1}, func(r *Reader) bool { return r.Count(9) != 0 }},
		"negative count":      {[]byte{1, 1, 1}, func(r *Reader) bool { return r.CountInt(9) != 0 }},
		"text above bound":    {[]byte("\x03abc"), func(r *Reader) bool { return r.Text(2) != "" }},
		"text cut off":        {[]byte("\x03ab"), func(r *Reader) bool { return r.Bytes(9) != nil }},
		"negative length":     {[]byte("abc"), func(r *Reader) bool { return r.Take(-1) != nil }},
	} {
		r := NewReader(tt.b)
		if tt.read(&r) || !r.Bad() || r.Done() || r.Len() != 0 {
			t.Errorf("%s: bad %v, done %v, %d bytes left", name, r.Bad(), r.Done(), r.Len())
		}
		if r.Byte() != 0 || r.Uint() != 0 || r.Int() != 0 || r.Fixed() != 0 || r.Count(9) != 0 ||
			r.Text(9) != "" || r.Take(1) != nil || len(r.Rest()) != 0 || !r.Bad() {
			t.Errorf("%s: something can be read behind it", name)
		}
	}
}

func TestReadingAndWritingDoNotAllocate(t *testing.T) {
	b, room := AppendText(AppendInt(AppendUint(nil, 1, 1<<40), -5), "key"), make([]byte, 0, 64)
	n := testing.AllocsPerRun(100, func() {
		r := NewReader(b)
		r.Uint()
		r.Uint()
		r.Int()
		if len(r.Bytes(9)) != 3 || !r.Done() {
			t.Fatal("not read")
		}
		room = AppendText(AppendFixed(AppendInt(AppendUint(room[:0], 1, 1<<40), -5), 1, 2), "key")
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// FuzzReader compares the Reader with encoding/binary and plain slicing. Of each pair of script
// bytes, the first selects what is read and the second its bound.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x00\x02\x03\x03\x05\x04\x09"), []byte("\x80\x01\x05\x01a\x03abc"))
	f.Fuzz(func(t *testing.T, script, b []byte) {
		r, left, bad := NewReader(b), b, false
		for ; len(script) > 1; script = script[2:] {
			most := int(script[1])
			fail := func() { left, bad = nil, true }
			uint := func() uint64 {
				v, n := binary.Uvarint(left)
				if n <= 0 {
					fail()
					return 0
				}
				left = left[n:]
				return v
			}
			take := func(n uint64) []byte {
				if n > uint64(len(left)) {
					fail()
					return nil
				}
				got := left[:n]
				left = left[n:]
				return got
			}
			switch script[0] % 5 {
			case 0:
				if got, want := r.Uint(), uint(); got != want {
					t.Fatalf("Uint: %d, want %d", got, want)
				}
			case 1:
				want, n := binary.Varint(left)
				if n <= 0 {
					want = 0
					fail()
				} else {
					left = left[n:]
				}
				if got := r.Int(); got != want {
					t.Fatalf("Int: %d, want %d", got, want)
				}
			case 2:
				if got, want := r.Take(most), take(uint64(most)); !bytes.Equal(got, want) {
					t.Fatalf("Take: %q, want %q", got, want)
				}
			case 3:
				n := uint()
				if n > uint64(most) || n > uint64(len(left)) {
					fail()
					n = 0
				}
				if got := r.Count(most); uint64(got) != n {
					t.Fatalf("Count: %d, want %d", got, n)
				}
			case 4:
				n := uint()
				if n > uint64(most) {
					fail()
					n = 0
				}
				if got, want := r.Text(most), take(n); got != string(want) {
					t.Fatalf("Text: %q, want %q", got, want)
				}
			}
			if r.Bad() != bad || r.Len() != len(left) {
				t.Fatalf("bad %v with %d bytes left, want %v with %d", r.Bad(), r.Len(), bad, len(left))
			}
		}
	})
}
