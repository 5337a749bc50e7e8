package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// copies keeps a second copy of each record in two files that are written in
// turn, so that one of them is whole at every moment. Nothing is synced: the
// copy guards against a damaged stream, not against a loss of power.
type copies struct {
	root *os.Root
	mu   sync.Mutex
	open map[string]*pair
}

type pair struct {
	files [2]*os.File
	n     uint64 // of the newest copy; its file is n mod 2
}

// A copyOf is what one file holds.
type copyOf struct {
	n, revision uint64
	value       []byte
}

// Layout of a file: magic, n, revision, length, CRC-32C of all else, value.
const (
	copyMagic = "hgr1"
	copyHead  = 4 + 8 + 8 + 4 + 4
	copySlots = "ab"
)

func castagnoli(parts ...[]byte) (sum uint32) {
	table := crc32.MakeTable(crc32.Castagnoli) // the same one each time
	for _, p := range parts {
		sum = crc32.Update(sum, table, p)
	}
	return sum
}

func openCopies(dir string) (*copies, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("second copies: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("second copies: %w", err)
	}
	return &copies{root: root, open: map[string]*pair{}}, nil
}

func (c *copies) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.open {
		for _, f := range p.files {
			f.Close()
		}
	}
	c.open = map[string]*pair{}
	c.root.Close()
}

// keys lists what there are copies of.
func (c *copies) keys() ([]string, error) {
	entries, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("second copies: %w", err)
	}
	var keys []string
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), "~a")
		if !ok {
			name, ok = strings.CutSuffix(e.Name(), "~b")
		}
		if key, err := unescape(name); ok && err == nil && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func copyName(key string, slot uint64) string {
	return escape(key) + "~" + copySlots[slot:slot+1]
}

// read returns the newest whole copy of a key.
func (c *copies) read(key string) (newest copyOf, ok bool) {
	for slot := range uint64(2) {
		b, err := c.root.ReadFile(copyName(key, slot))
		if err != nil {
			continue
		}
		if x, err := parseCopy(b); err == nil && (!ok || x.n > newest.n) {
			newest, ok = x, true
		}
	}
	return newest, ok
}

var errCopy = errors.New("not a copy of a record, or a damaged one")

func parseCopy(b []byte) (x copyOf, err error) {
	if len(b) < copyHead || string(b[:4]) != copyMagic {
		return x, errCopy
	}
	x.n, x.revision = binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])
	n, sum := binary.LittleEndian.Uint32(b[20:]), binary.LittleEndian.Uint32(b[24:])
	if uint64(n) > uint64(len(b)-copyHead) {
		return x, errCopy
	}
	x.value = b[copyHead : copyHead+int(n)]
	if castagnoli(b[:24], x.value) != sum {
		return x, errCopy
	}
	return x, nil
}

func appendCopy(b []byte, x copyOf) []byte {
	at := len(b)
	b = append(b, copyMagic...)
	b = binary.LittleEndian.AppendUint64(b, x.n)
	b = binary.LittleEndian.AppendUint64(b, x.revision)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(x.value)))
	b = binary.LittleEndian.AppendUint32(b, castagnoli(b[at:], x.value))
	return append(b, x.value...)
}

// write makes a copy of what the engine has confirmed. A longer value that was
// there before leaves its tail behind: the length says where the copy ends.
func (c *copies) write(key string, revision uint64, value []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.pairLocked(key)
	if err != nil {
		return err
	}
	b := appendCopy(make([]byte, 0, copyHead+len(value)), copyOf{p.n + 1, revision, value})
	if _, err := p.files[(p.n+1)%2].WriteAt(b, 0); err != nil {
		return err
	}
	p.n++
	return nil
}

func (c *copies) pairLocked(key string) (*pair, error) {
	if p := c.open[key]; p != nil {
		return p, nil
	}
	p := &pair{}
	for slot := range p.files {
		f, err := c.root.OpenFile(copyName(key, uint64(slot)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.files[slot] = f
	}
	newest, _ := c.read(key)
	p.n = newest.n
	c.open[key] = p
	return p, nil
}

func (p *pair) close() error {
	for _, f := range p.files {
		if f != nil {
			f.Close()
		}
	}
	return nil
}
