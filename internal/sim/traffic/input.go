package traffic

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/headgate/headgate/internal/hint"
)

// maxLine is the maximum length of a line. Chosen: servers limit a request line to about 8 KB, and
// two headers may follow.
const maxLine = 256 << 10

// An input returns the lines of a file.
type input struct {
	name   string
	size   int64 // 0: unknown, as for a pipe
	taken  int64 // bytes of the file
	number int64 // of the line
	lines  *bufio.Scanner
	closer io.Closer
}

func openInput(name string) (*input, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	in := &input{name: name, closer: f}
	stat, err := f.Stat()
	if err == nil && stat.Mode().IsRegular() {
		in.size = stat.Size()
	}
	if err == nil {
		err = in.begin(f)
	}
	if err != nil {
		in.close()
		return nil, unreadable(name, err)
	}
	return in, nil
}

// begin checks whether the file is compressed.
func (in *input) begin(r io.Reader) error {
	plain := bufio.NewReaderSize(&counting{r, &in.taken}, 1<<16)
	r = plain
	if magic, _ := plain.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) { // RFC 1952
		z, err := gzip.NewReader(plain)
		if err != nil {
			return err
		}
		r = z
	}
	in.lines = bufio.NewScanner(r)
	in.lines.Buffer(make([]byte, 1<<16), maxLine)
	return nil
}

func (in *input) close() { _ = in.closer.Close() }

// next returns the next line that is not empty. Its bytes are valid until the next call.
func (in *input) next() ([]byte, bool) {
	for in.lines.Scan() {
		in.number++
		line := in.lines.Bytes()
		if in.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // the byte order mark of UTF-8
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return line, true
		}
	}
	return nil, false
}

// err returns why the lines ended; nil at the end of the file.
func (in *input) err() error {
	err := in.lines.Err()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return &hint.Error{Text: fmt.Sprintf("%s:%d: is longer than %d KB", in.name, in.number+1, maxLine>>10),
			Do: "name a CSV file or an access log, one request a line", Err: err, Quiet: true}
	}
	return unreadable(in.name, err)
}

// fault returns an error about the line read last.
func (in *input) fault(do, problem string, args ...any) error {
	where := in.name
	if in.number > 0 {
		where = fmt.Sprintf("%s:%d", in.name, in.number)
	}
	return &hint.Error{Text: where + ": " + fmt.Sprintf(problem, args...), Do: do}
}

// done returns the share of the file that has been read, or 0 if unknown.
func (in *input) done() float64 {
	if in.size == 0 {
		return 0
	}
	return min(1, float64(in.taken)/float64(in.size))
}

// unreadable explains why a file could not be read.
func unreadable(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &hint.Error{Text: name + ": there is no such file", Do: nameFile, Err: err, Quiet: true}
	case errors.Is(err, fs.ErrPermission):
		return &hint.Error{Text: name + ": may not be read by this user",
			Do: "change its permissions, or copy it", Err: err, Quiet: true}
	}
	return hint.File(err, name+": cannot be read", nameFile)
}

const nameFile = "name a CSV file or an access log"

// A counting is a reader that counts bytes.
type counting struct {
	io.Reader
	n *int64
}

// Read reads and counts.
func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	*c.n += int64(n)
	return n, err
}
