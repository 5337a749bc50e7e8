package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// What was told to visitors between the backup and the end of the old process is
// not in the backup. Four things make up for that, room by room:
//
//   - Quiet: nobody new is let in before whoever was let in meanwhile has left.
//   - Next: numbers that were given to visitors meanwhile are not given again.
//     Whoever comes with one has its place; the others are nobody.
//   - Time: counter time went on meanwhile. A stay that began meanwhile would else
//     last for the age of the backup, and Quiet would be too short for it.
//   - Epoch: what passes say of the epochs meanwhile must not be taken for what the
//     record now knows.
const (
	// mostSkipped is more tickets than a room issues between two backups: 2,000
	// joins a second for nine minutes, or 12 a second for a day. A ticket beyond
	// makes the room quiet by itself (package counter). Chosen: a million places
	// that nobody holds take 10 MB for some minutes, so many rooms get fewer.
	mostSkipped  = 1 << 20
	leastSkipped = 1 << 14
	allSkipped   = 1 << 24
	// skipEpochs is more starts than between two backups.
	skipEpochs = 1 << 16
)

// A Restored is what a restore has done.
type Restored struct {
	MadeAt  time.Time // of the backup
	Version string    // of the headgate that made it
	Rooms   []RestoredRoom
	Keys    int
	Tokens  bool
	Aside   string // where the old folder is now, or ""
	Owner   string // user id that owns the folder if it is not this user's, or ""
}

// A RestoredRoom is what will happen to a room at the next start.
type RestoredRoom struct {
	Name   string
	Inside int64         // stays that have not ended
	Quiet  time.Duration // nobody new is let in for so long
}

// A RestoreConfig says where a backup goes.
type RestoreConfig struct {
	Dir   string
	Aside bool // an old folder is put aside
	Now   time.Time
}

// Restore fills a data folder from a backup. The folder must be empty or not
// there, or else is put aside; nothing is written before the whole backup was
// read and found good.
func Restore(r io.Reader, cfg RestoreConfig) (*Restored, error) {
	m, err := readManifest(r)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return nil, e
		}
		return nil, &Error{Text: "the backup cannot be taken", Err: err,
			Do: "take another one; nothing was changed"}
	}
	if err := m.understood(); err != nil {
		return nil, err
	}
	aside, err := clearWay(cfg)
	if err != nil {
		return nil, err
	}
	got := &Restored{MadeAt: m.MadeAt, Version: m.Version, Keys: len(m.in(keysDir)),
		Tokens: m.find(tokensName) != nil, Aside: aside}
	copies, err := m.age(got, cfg.Now, lastRun(aside, cfg.Now))
	if err != nil {
		return nil, err
	}
	if err := fill(cfg.Dir, m, copies); err != nil {
		return nil, err
	}
	got.Owner, err = giveBack(cfg.Dir, aside)
	return got, err
}

// understood decodes all that a headgate will read.
func (m *manifest) understood() error {
	fault := func(name string, err error) error {
		return &Error{Text: "the backup's " + name + " cannot be taken", Err: err,
			Do: "take another backup, or the headgate that made it: " + m.Version}
	}
	v, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(
		string(m.find(formatName).body), "headgate-data ")))
	if err != nil || v > datadir.Version {
		return fault(formatName, errors.Join(err, fmt.Errorf("this headgate knows format %d",
			datadir.Version)))
	}
	for _, x := range m.in(keysDir) {
		if _, err := datadir.ParseKey(strings.TrimPrefix(x.Name, keysDir), x.body); err != nil {
			return fault(x.Name, err)
		}
	}
	if x := m.find(tokensName); x != nil && !json.Valid(x.body) {
		return fault(tokensName, errors.New("it is damaged"))
	}
	for _, x := range m.in(recordsDir) {
		key, err := store.ParseRecordName(strings.TrimPrefix(x.Name, recordsDir))
		if err == nil && strings.HasPrefix(key, counterKey) {
			err = new(slot.Record).UnmarshalBinary(x.body)
		}
		if err != nil {
			return fault(x.Name, err)
		}
	}
	return nil
}

// clearWay holds that the folder can be filled, and puts an old one aside.
func clearWay(cfg RestoreConfig) (aside string, err error) {
	entries, err := os.ReadDir(cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && empty(entries) {
		return "", nil
	}
	if err != nil {
		return "", &Error{Text: cfg.Dir + " cannot be read", Err: err,
			Do: "name a folder that is not there yet with --data DIR"}
	}
	_, used, err := datadir.InUse(cfg.Dir)
	switch {
	case err != nil:
		return "", err
	case used:
		return "", &Error{Text: "a headgate works in " + cfg.Dir,
			Do: "stop it first: what it writes must not mix with the backup"}
	case !cfg.Aside:
		return "", &Error{Text: cfg.Dir + " is not empty",
			Do: "name a folder that is not there yet, or add --aside: the old one is kept beside it"}
	}
	lock, err := holdOld(cfg.Dir)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	aside = fmt.Sprintf("%s.old-%s", filepath.Clean(cfg.Dir), cfg.Now.UTC().Format("20060102T150405"))
	if _, err := os.Lstat(aside); err == nil {
		return "", &Error{Text: aside + " is there already", Do: "run this again in a second"}
	}
	if err := os.Rename(cfg.Dir, aside); err != nil {
		e := &Error{Text: "the old folder cannot be put aside", Err: err,
			Do: "run this as the owner of the folder above it"}
		if errors.Is(err, syscall.EBUSY) {
			e.Do = "it is a mount of its own: move what is in it elsewhere, and restore into the empty one"
		}
		return "", e
	}
	return aside, nil
}

// empty takes what a fresh file system has for nothing.
func empty(entries []fs.DirEntry) bool {
	for _, e := range entries {
		if e.Name() != "lost+found" {
			return false
		}
	}
	return true
}

// holdOld keeps a headgate from starting in a folder that is about to move.
func holdOld(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &Error{Text: "the old folder cannot be locked", Err: err,
			Do: "run this as headgate's user, who owns the data folder"}
	}
	if err := platform.TryLock(lock); err != nil {
		lock.Close()
		return nil, &Error{Text: "a headgate works in " + dir,
			Do: "stop it first: what it writes must not mix with the backup"}
	}
	return lock, nil
}

// lastRun is the latest moment at which a headgate can have told a visitor
// anything: of an old folder that is there still, when it was written last, else
// now.
func lastRun(aside string, now time.Time) time.Time {
	last := time.Time{}
	for _, part := range []string{"engine", "records"} {
		if aside == "" {
			return now
		}
		err := filepath.WalkDir(filepath.Join(aside, part), func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err == nil && info.ModTime().After(last) {
				last = info.ModTime()
			}
			return err
		})
		if err != nil {
			return now
		}
	}
	if last.IsZero() || last.After(now) {
		return now
	}
	return last
}

// age makes up for the time between the backup and the end of the old process.
func (m *manifest) age(got *Restored, now, ran time.Time) ([]store.Copy, error) {
	var all []store.Copy
	records := m.in(recordsDir)
	skip := uint64(max(leastSkipped, min(mostSkipped, allSkipped/max(1, len(records)))))
	for _, x := range records {
		key, err := store.ParseRecordName(strings.TrimPrefix(x.Name, recordsDir))
		if err != nil {
			return nil, err
		}
		c := store.Copy{Key: key, Value: x.body}
		if room, ok := strings.CutPrefix(key, counterKey); ok {
			rec := &slot.Record{}
			if err := rec.UnmarshalBinary(x.body); err != nil {
				return nil, err
			}
			// While nobody ran, counter time stood still: the clock went on from the
			// last write of a headgate that ran, else from the backup.
			since := x.Written
			if !m.Running || since.IsZero() || since.After(m.MadeAt) {
				since = m.MadeAt
			}
			late(rec, max(0, ran.Sub(since)), skip)
			if c.Value, err = rec.AppendBinary(nil); err != nil {
				return nil, err
			}
			got.Rooms = append(got.Rooms, RestoredRoom{Name: room,
				Inside: rec.Limits[0].Ends.After(rec.Time),
				Quiet:  slot.NewPool(slot.Params{}, "", rec).Quarantine(0)})
		}
		all = append(all, c)
	}
	return all, nil
}

// late makes a record one that missed what happened within the last d, and skips
// numbers.
func late(rec *slot.Record, d time.Duration, skip uint64) {
	rec.Quiet = true
	if rec.Issued == 0 {
		rec.Issued = rec.Next
	}
	rec.Next += skip
	for i := range rec.Lanes {
		rec.Lanes[i].Next += skip
	}
	rec.Name.Epoch += skipEpochs
	// The old process's clock may have gone faster than this one's.
	rec.Time = rec.Time.Add(slot.DefaultDrift.Stretch(d))
}

// fill writes the folder. Before the end no headgate starts in it.
func fill(dir string, m *manifest, copies []store.Copy) error {
	w, err := datadir.Fill(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	for _, x := range m.in(keysDir) {
		if err := w.Put(x.Name, x.body); err != nil {
			return err
		}
	}
	if x := m.find(tokensName); x != nil {
		if err := w.Put(x.Name, x.body); err != nil {
			return err
		}
	}
	if err := store.WriteCopies(filepath.Join(dir, "records"), copies); err != nil {
		return w.Fault("the records cannot be written", err)
	}
	if err := w.Done(); err != nil {
		return err
	}
	return platform.SyncDir(filepath.Dir(filepath.Clean(dir)))
}

// giveBack gives what root has written to the owner of the folder, who else could
// not read it.
func giveBack(dir, aside string) (owner string, err error) {
	like := dir
	if aside != "" {
		like = aside
	}
	info, err := os.Stat(like)
	if err != nil {
		return "", err
	}
	uid, gid, ok := platform.Owner(info)
	if !ok || os.Geteuid() != 0 || uid == 0 {
		return "", nil
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
	return strconv.Itoa(uid), err
}
