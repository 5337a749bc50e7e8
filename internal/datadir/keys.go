package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sealing keys are files keys/NNN.key: 64 hexadecimal digits, mode 0600. The newest one seals; the
// others still open what they sealed.

// KeepKeys is how long a key can open after a newer one has replaced it: longer than the longest
// session plus the longest hold, 30 days each. Chosen.
const KeepKeys = 62 * 24 * time.Hour

// MaxKeys limits the ring; the oldest keys are removed.
const MaxKeys = 64

// A SealingKey is one key of the ring.
type SealingKey struct {
	ID   byte
	Key  [32]byte
	Made time.Time
}

// KeysLost reports whether the folder has records but no sealing key. Then nobody can open the
// cookies of visitors.
func (f *Folder) KeysLost() bool {
	keys, err := f.readKeys(f.Path("keys"))
	records, rerr := os.ReadDir(f.Records())
	return len(keys) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist)) && rerr == nil &&
		len(records) > 0
}

// Keys returns the sealing keys, the newest first. In a folder without keys it creates the first
// one.
func (f *Folder) Keys() ([]SealingKey, error) {
	f.keys.Lock()
	defer f.keys.Unlock()
	dir := f.Path("keys")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, wrong(err, f.dir, "cannot be written", writeHint(err))
	}
	if err := f.private("keys"); err != nil {
		return nil, err
	}
	keys, err := f.readKeys(dir)
	if err == nil && len(keys) == 0 {
		return f.rotateLocked(time.Now())
	}
	return keys, err
}

func (f *Folder) readKeys(dir string) ([]SealingKey, error) {
	keys, faults := f.readAllKeys(dir)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	return keys[:min(len(keys), MaxKeys)], nil
}

// readAllKeys reads the sealing keys, the newest first, and returns the faults of each file.
func (f *Folder) readAllKeys(dir string) (keys []SealingKey, faults []error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, []error{wrong(err, f.dir, "cannot be read", writeHint(err))}
	}
	for _, e := range entries {
		id, ok := keyID(e.Name())
		if !ok {
			continue
		}
		if k, err := f.readKey(filepath.Join("keys", e.Name()), id); err != nil {
			faults = append(faults, err)
		} else {
			keys = append(keys, k)
		}
	}
	sortKeys(keys)
	return keys, faults
}

// keyID returns the number of a key from its file name.
func keyID(name string) (byte, bool) {
	number, ok := strings.CutSuffix(name, ".key")
	id, err := strconv.ParseUint(number, 10, 8)
	return byte(id), ok && err == nil && id != 0
}

// sortKeys sorts by time, the newest first. Of two with the same time, the higher number counts as
// newer.
func sortKeys(keys []SealingKey) {
	slices.SortFunc(keys, func(a, b SealingKey) int {
		if c := b.Made.Compare(a.Made); c != 0 {
			return c
		}
		return int(b.ID) - int(a.ID)
	})
}

func (f *Folder) readKey(name string, id byte) (k SealingKey, err error) {
	if err := f.private(name); err != nil {
		return k, err
	}
	b, err := os.ReadFile(f.Path(name))
	if err != nil {
		return k, wrong(err, f.dir, "cannot be read", writeHint(err))
	}
	if k, err = parseKey(id, b); err != nil {
		return k, wrong(nil, f.dir, f.Path(name)+" is damaged", "bring it back from a backup, or remove it: "+
			"whoever holds a cookie that it sealed loses the place")
	}
	return k, nil
}

func parseKey(id byte, b []byte) (k SealingKey, err error) {
	text, at, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	key, err := hex.DecodeString(text)
	made, terr := time.Parse(time.RFC3339Nano, at)
	if err != nil || terr != nil || len(key) != len(k.Key) {
		return k, errors.New("not a sealing key")
	}
	return SealingKey{ID: id, Key: [32]byte(key), Made: made}, nil
}

// Rotate creates a new key, which seals from the next start or reload on. It removes keys that
// nobody can need any more, and returns the remaining ones.
func (f *Folder) Rotate(now time.Time) ([]SealingKey, error) {
	f.keys.Lock()
	defer f.keys.Unlock()
	return f.rotateLocked(now)
}

// rotateLocked makes a new sealing key and removes those that no valid cookie can use any more.
func (f *Folder) rotateLocked(now time.Time) ([]SealingKey, error) {
	dir := f.Path("keys")
	keys, err := f.readKeys(dir)
	if err != nil {
		return nil, err
	}
	used := map[byte]bool{}
	for i, k := range keys {
		if i > 0 && now.Sub(keys[i-1].Made) > KeepKeys || i >= MaxKeys-1 {
			err := os.Remove(filepath.Join(dir, keyName(k.ID)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, wrong(err, f.dir, "an old key cannot be removed", writeHint(err))
			}
			continue
		}
		used[k.ID] = true
	}
	next := SealingKey{ID: 1, Made: now.UTC()}
	if len(keys) > 0 {
		next.ID = keys[0].ID
		next.Made = latest(next.Made, keys[0].Made.Add(time.Nanosecond)) // the clock may have been set back
	}
	for used[next.ID] || next.ID == 0 {
		next.ID++
	}
	rand.Read(next.Key[:])
	text := hex.EncodeToString(next.Key[:]) + " " + next.Made.Format(time.RFC3339Nano) + "\n"
	if err := writeFile(filepath.Join(dir, keyName(next.ID)), []byte(text)); err != nil {
		return nil, wrong(err, f.dir, "a key cannot be written", writeHint(err))
	}
	return f.readKeys(dir)
}

// These are the reasons why a key is not removed.
var (
	ErrNoKey    = errors.New("there is no such key")
	ErrKeySeals = errors.New("this key seals, or is about to")
)

// Forget removes a key, and returns the others. What it sealed can no longer be opened.
func (f *Folder) Forget(id byte) ([]SealingKey, error) {
	f.keys.Lock()
	defer f.keys.Unlock()
	dir := f.Path("keys")
	keys, err := f.readKeys(dir)
	if err != nil {
		return nil, err
	}
	switch at := slices.IndexFunc(keys, func(k SealingKey) bool { return k.ID == id }); at {
	case -1:
		return nil, ErrNoKey
	case 0:
		return nil, ErrKeySeals
	}
	if err := os.Remove(filepath.Join(dir, keyName(id))); err != nil {
		return nil, wrong(err, f.dir, "a key cannot be removed", writeHint(err))
	}
	return f.readKeys(dir)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func keyName(id byte) string { return fmt.Sprintf("%03d.key", id) }
