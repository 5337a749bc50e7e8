package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// Everything that visitors received between the backup and the end of the old process is missing
// from the backup. Four changes to each room make up for that:
//
//   - Quiet: nobody new is admitted until all sessions that began meanwhile
//     have ended.
//   - Next: ticket numbers issued meanwhile are not issued again. A visitor with
//     such a ticket keeps its place; unused numbers are skipped.
//   - Time: counter time went on meanwhile. Otherwise a session that began
//     meanwhile would last longer by the age of the backup, and Quiet would be
//     too short for it.
//   - Epoch: epochs named by passes issued meanwhile must differ from the
//     epochs that the record will know.
const (
	// mostSkipped is more tickets than a room issues between two backups: 2,000 joins a second for
	// nine minutes, or 12 a second for a day. A ticket with a higher number makes the room quiet by
	// itself (package counter). Chosen: a million empty places use 10 MB for some minutes, so with
	// many rooms each one gets fewer.
	mostSkipped  = 1 << 20
	leastSkipped = 1 << 14
	allSkipped   = 1 << 24
	// skipEpochs is more than the number of starts between two backups.
	skipEpochs = 1 << 16
)

// A Restored is the result of a restore.
type Restored struct {
	MadeAt  time.Time // of the backup
	Version string    // the headgate that made it
	Rooms   []RestoredRoom
	Keys    int
	Tokens  bool
	Aside   string // the old folder's new place, or ""
	Owner   string // user id of the folder's owner, if not this user; or ""
}

// A RestoredRoom is what happens to a room at the next start.
type RestoredRoom struct {
	Name   string
	Inside int64         // sessions that have not ended
	Quiet  time.Duration // how long nobody new is admitted
}

// A RestoreConfig defines where a backup is restored.
type RestoreConfig struct {
	Dir   string
	Aside bool // move an old folder aside
	Now   time.Time
}

// Restore fills a data folder from a backup. The folder must be empty or missing, or it is moved
// aside. Restore writes nothing before it has read and checked the whole backup.
func Restore(r io.Reader, cfg RestoreConfig) (*Restored, error) {
	m, err := readManifest(r)
	if err != nil {
		if e, ok := errors.AsType[*hint.Error](err); ok {
			return nil, e
		}
		return nil, &hint.Error{Text: "the backup cannot be taken", Err: err,
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

// understood decodes everything that a headgate will read.
func (m *manifest) understood() error {
	fault := func(name string, err error) error {
		return &hint.Error{Text: "the backup's " + name + " cannot be taken", Err: err,
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

// clearWay checks that the folder can be filled, and moves an old one aside.
func clearWay(cfg RestoreConfig) (aside string, err error) {
	entries, err := os.ReadDir(cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && empty(entries) {
		return "", nil
	}
	if err != nil {
		return "", &hint.Error{Text: cfg.Dir + " cannot be read", Err: err,
			Do: "name a folder that is not there yet with --data DIR"}
	}
	_, used, err := datadir.InUse(cfg.Dir)
	switch {
	case err != nil:
		return "", err
	case used:
		return "", &hint.Error{Text: "a headgate works in " + cfg.Dir,
			Do: "stop it first: what it writes must not mix with the backup"}
	case !cfg.Aside:
		return "", &hint.Error{Text: cfg.Dir + " is not empty",
			Do: "name a folder that is not there yet, or add --aside: the old one is kept beside it"}
	}
	// Held until the folder has its new name: a headgate that starts meanwhile would work in the
	// folder that is moved away.
	lock, err := holdOld(cfg.Dir)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	aside = fmt.Sprintf("%s.old-%s", filepath.Clean(cfg.Dir), cfg.Now.UTC().Format("20060102T150405"))
	if _, err := os.Lstat(aside); err == nil {
		return "", &hint.Error{Text: aside + " is there already", Do: "run this again in a second"}
	}
	if err := os.Rename(cfg.Dir, aside); err != nil {
		e := &hint.Error{Text: "the old folder cannot be put aside", Err: err,
			Do: "run this as the owner of the folder above it"}
		if errors.Is(err, syscall.EBUSY) {
			e.Do = "it is a mount of its own: move what is in it elsewhere, and restore into the empty one"
		}
		return "", e
	}
	return aside, nil
}

// empty reports whether a folder counts as empty. It ignores what a new file system contains.
func empty(entries []fs.DirEntry) bool {
	return !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lost+found" })
}

// holdOld prevents a headgate from starting in a folder that is about to be moved.
func holdOld(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &hint.Error{Text: "the old folder cannot be locked", Err: err,
			Do: "run this as headgate's user, who owns the data folder"}
	}
	if err := platform.TryLock(lock); err != nil {
		lock.Close()
		return nil, &hint.Error{Text: "a headgate works in " + dir,
			Do: "stop it first: what it writes must not mix with the backup"}
	}
	return lock, nil
}

// lastRun returns the latest time at which a headgate can have sent a visitor anything: the last
// write to the old folder if it still exists, else now.
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
			// While no headgate ran, counter time stood still. It continues from the last write of
			// a headgate that ran, else from the backup.
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

// late changes a record into one that has missed what happened within the last d, and skips
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
	// The old process's clock may have run faster than this one.
	rec.Time = rec.Time.Add(slot.DefaultDrift.Stretch(d))
}

// fill writes the folder. No headgate can start in it before fill returns.
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

// giveBack gives the files that root has written to the owner of the folder, who could not read
// them otherwise.
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
