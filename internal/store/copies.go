package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/platform"
)

// copies keeps a second copy of each record. The copy has two files that are written in turn, so
// that one of them is whole at any moment. Nothing is synced: the copies protect against a damaged
// stream, not against a power failure.
type copies struct {
	root *os.Root
	mu   sync.Mutex
	open map[string]*pair
}

type pair struct {
	files [2]*os.File
	n     uint64 // number of the newest copy; its file is n mod 2
}

// A copyOf is the content of one file.
type copyOf struct {
	n, revision uint64
	value       []byte
}

// The layout of a file: magic, n, revision, length, CRC-32C of all other bytes, value.
const (
	copyMagic = "hgr1"
	copyHead  = 4 + 8 + 8 + 4 + 4
	copySlots = "ab"
	firstCopy = 1 // n of the first copy of a record
)

func castagnoli(parts ...[]byte) (sum uint32) {
	table := crc32.MakeTable(crc32.Castagnoli) // shared: not computed again
	for _, p := range parts {
		sum = crc32.Update(sum, table, p)
	}
	return sum
}

func openCopies(dir string) (*copies, error) {
	err := os.MkdirAll(dir, 0o700)
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("second copies: %w", err)
	}
	return &copies{root: root, open: map[string]*pair{}}, nil
}

func (c *copies) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.open {
		p.close()
	}
	c.open = map[string]*pair{}
	c.root.Close()
}

// keys returns the keys that have copies.
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

// lost reports whether a key had a copy and no file of it is whole.
func (c *copies) lost(key string) bool {
	x, err := c.look(key)
	return err != nil || !x.Whole() && len(x.Damaged()) > 0
}

// fresh reports whether a copy is unchanged since WriteCopies: the first one, without a revision of
// an engine, and alone. A store that has written the key since has written the other file.
func (c *copies) fresh(key string, x *copyOf) bool {
	if x.n != firstCopy || x.revision != 0 {
		return false
	}
	now, err := c.look(key)
	return err == nil && now.Slots[(firstCopy+1)%2] == CopyEmpty
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

// write writes a copy of a value that the engine has confirmed. The rest of a longer old value
// stays behind it in the file; the length says where the copy ends.
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

// forget closes the files of a key. The next write opens them again and finds out which file is
// newer, even if another process has written it.
func (c *copies) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.open[key]; p != nil {
		p.close()
		delete(c.open, key)
	}
}

func (c *copies) pairLocked(key string) (*pair, error) {
	if p := c.open[key]; p != nil {
		return p, nil
	}
	p := &pair{}
	for slot := range p.files {
		f, err := c.root.OpenFile(copyName(key, uint64(slot)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			p.close()
			return nil, err
		}
		p.files[slot] = f
	}
	newest, _ := c.read(key)
	p.n = newest.n
	c.open[key] = p
	return p, nil
}

func (p *pair) close() {
	for _, f := range p.files {
		if f != nil {
			f.Close()
		}
	}
}

// The rest of this file is for programs that inspect or write a folder of second copies while no
// store, or a store of another process, uses it.

// CopyState is the state of one file of a second copy.
type CopyState int

// The states of a file. A power failure can damage the newest write; the other file is whole then.
const (
	CopyEmpty CopyState = iota // missing, or never written
	CopyWhole
	CopyDamaged
)

// A Copy is the second copy of a record, from its two files.
type Copy struct {
	Key      string
	Value    []byte // of the newest whole file; nil: none
	Revision uint64
	Written  time.Time // Value was written at this time or earlier
	Slots    [2]CopyState
}

// Whole reports whether a file is whole, so that there is a value.
func (c *Copy) Whole() bool { return slices.Contains(c.Slots[:], CopyWhole) }

// Damaged returns the names of the files that are damaged or not a copy.
func (c *Copy) Damaged() (names []string) {
	for slot, s := range c.Slots {
		if s == CopyDamaged {
			names = append(names, copyName(c.Key, uint64(slot)))
		}
	}
	return names
}

// RecordName returns the file name for a key, without the suffix of its copies.
func RecordName(key string) string { return escape(key) }

// ParseRecordName returns the key of a name that RecordName returned.
func ParseRecordName(name string) (string, error) {
	key, err := unescape(name)
	if err == nil && escape(key) != name {
		err = fmt.Errorf("%q names no record", name)
	}
	return key, err
}

// ReadCopies reads all second copies in a folder and changes nothing. A store may write at the same
// time. A file that is being written looks damaged for a moment, so ReadCopies reads it again.
func ReadCopies(dir string) ([]Copy, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("second copies: %w", err)
	}
	c := &copies{root: root}
	defer c.close()
	keys, err := c.keys()
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	var all []Copy
	for _, key := range keys {
		x, err := c.look(key)
		for n := 0; err == nil && len(x.Damaged()) > 0 && n < copyLooks; n++ {
			if x.Whole() && n >= copyLooksWhole {
				break
			}
			time.Sleep(copyPause)
			x, err = c.look(key)
		}
		if err != nil {
			return nil, fmt.Errorf("second copies: %w", err)
		}
		all = append(all, x)
	}
	return all, nil
}

// A write of a copy takes about 10 µs, and a counter writes at most once each 2 ms. A file that
// looks damaged for much longer is damaged. If both files look damaged, more attempts are needed,
// because each may have been written between two reads.
const (
	copyLooks      = 100
	copyLooksWhole = 4
	copyPause      = time.Millisecond
)

// look reads both copies of a record and returns the newer whole one.
func (c *copies) look(key string) (Copy, error) {
	x, newest := Copy{Key: key}, copyOf{}
	for slot := range x.Slots {
		b, at, err := c.slurp(copyName(key, uint64(slot)))
		if err != nil {
			return x, err
		}
		if len(b) == 0 {
			continue
		}
		parsed, err := parseCopy(b)
		if err != nil {
			x.Slots[slot] = CopyDamaged
			continue
		}
		x.Slots[slot] = CopyWhole
		if x.Value == nil || parsed.n > newest.n {
			newest, x.Value, x.Revision, x.Written = parsed, parsed.value, parsed.revision, at
		}
	}
	return x, nil
}

// slurp reads a file of at most one copy. It returns no bytes if the file does not exist. The time
// is that of the last write, taken after the bytes were read.
func (c *copies) slurp(name string) ([]byte, time.Time, error) {
	f, err := c.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, copyHead+maxValue))
	if err != nil {
		return nil, time.Time{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	return b, info.ModTime(), nil
}

// WriteCopies writes second copies into a folder that has none. It returns when they are on disk. A
// store that opens an empty engine takes them over.
func WriteCopies(dir string, all []Copy) error {
	c, err := openCopies(dir)
	if err != nil {
		return err
	}
	defer c.close()
	for i := range all {
		if err := writeCopy(c.root, &all[i]); err != nil {
			return fmt.Errorf("second copies: %w", err)
		}
	}
	return platform.SyncDir(dir)
}

// writeCopy writes the file that a store would write first. It has revision 0, which no message
// has, so any value that an engine has for the key is newer.
func writeCopy(root *os.Root, x *Copy) error {
	f, err := root.OpenFile(copyName(x.Key, firstCopy%2), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(appendCopy(nil, copyOf{n: firstCopy, value: x.Value}))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
