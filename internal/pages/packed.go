package pages

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
)

// leastPacked is the shortest fixed text that is compressed into a block of its own. Measured.
const leastPacked = 256

// A packed is a template that appends its page as gzip (RFC 1952) at the cost of copying. Long
// fixed texts are compressed once. Everything else, including the values, is in stored blocks (RFC
// 1951, section 3.2.4). No value is ever compressed together with another one, so the length of the
// page leaks nothing about a value.
type packed[T any] []part[T]

// A part is one compressed text, or the segments of a stored block.
type part[T any] struct {
	block []byte // compressed text; nil: stored
	size  int    // of the text
	sum   uint32 // its CRC-32
	shift [32]uint32

	stored template[T]
}

// pack compresses the long texts of a template. Short ones stay: a block of their own would be
// longer than they are.
func pack[T any](t template[T]) (packed[T], error) {
	var out packed[T]
	var run template[T]
	for _, s := range t {
		if len(s.text) < leastPacked {
			run = append(run, s)
			continue
		}
		p, err := packText[T](s.text)
		if err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
		if len(run) > 0 {
			out = append(out, part[T]{stored: run})
		}
		out = append(out, p)
		run = template[T]{{value: s.value}}
	}
	return append(out, part[T]{stored: run}), nil
}

// packText compresses a text that is the same for all visitors.
func packText[T any](text string) (part[T], error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		return part[T]{}, err
	}
	if _, err := w.Write([]byte(text)); err != nil {
		return part[T]{}, err
	}
	if err := w.Flush(); err != nil { // to a byte boundary, so that a block can follow
		return part[T]{}, err
	}
	p := part[T]{block: b.Bytes(), size: len(text), sum: crc32.ChecksumIEEE([]byte(text))}
	// A CRC is linear: the CRC of a||text is the CRC of a||zeros, changed by the CRC of text. The
	// effect of the zeros is known for each bit, so no byte of the text is read again.
	zeros := make([]byte, len(text))
	none := crc32.Update(0, crc32.IEEETable, zeros)
	for i := range p.shift {
		p.shift[i] = crc32.Update(1<<i, crc32.IEEETable, zeros) ^ none
	}
	return p, nil
}

var gzipHeader = [...]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

const mostStored = 65535 // limit of a stored block in the format

// append appends the page as gzip: compressed parts as they are, and values in stored blocks
// between them. No byte is compressed while a visitor waits.
func (t packed[T]) append(dst []byte, x *T) []byte {
	dst = append(dst, gzipHeader[:]...)
	var sum, size uint32
	for i := range t {
		p := &t[i]
		if p.block != nil {
			dst = append(dst, p.block...)
			next := p.sum
			for bit := range p.shift {
				next ^= p.shift[bit] & -(sum >> bit & 1)
			}
			sum, size = next, size+uint32(p.size)
			continue
		}
		at := len(dst)
		dst = p.stored.append(append(dst, 0, 0, 0, 0, 0), x)
		body := dst[at+5:]
		sum, size = crc32.Update(sum, crc32.IEEETable, body), size+uint32(len(body))
		if len(body) <= mostStored {
			putLength(dst[at:], len(body))
			continue
		}
		body, dst = slices.Clone(body), dst[:at]
		for chunk := range slices.Chunk(body, mostStored) {
			at := len(dst)
			dst = append(append(dst, 0, 0, 0, 0, 0), chunk...)
			putLength(dst[at:], len(chunk))
		}
	}
	dst = append(dst, 3, 0) // the last block: empty, with fixed codes
	dst = binary.LittleEndian.AppendUint32(dst, sum)
	return binary.LittleEndian.AppendUint32(dst, size)
}

func putLength(block []byte, n int) {
	binary.LittleEndian.PutUint16(block[1:], uint16(n))
	binary.LittleEndian.PutUint16(block[3:], ^uint16(n))
}

// takesGzip reports whether an Accept-Encoding header allows gzip (RFC 9110, section 12.5.3).
func takesGzip(accept string) bool {
	_, after, ok := strings.Cut(accept, "gzip")
	if !ok {
		return false
	}
	params, _, _ := strings.Cut(after, ",")
	_, q, weighted := strings.Cut(params, "q=")
	if !weighted {
		return true
	}
	weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
	return err == nil && weight > 0
}
