package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// A Backup is the content read from a data folder.
type Backup struct {
	Rooms    []string // rooms whose records are included
	Keys     int      // sealing keys
	Tokens   bool
	Running  bool
	Queues   []string // queues; their jobs are not included
	Bytes    int      // of all members
	Damaged  []Loss   // what should be included, but is not
	Warnings []string

	manifest manifest
}

// A Loss is a record without an intact copy.
type Loss struct{ Key, Files string }

// counterKey is the prefix of the keys of the rooms' records (package counter).
const counterKey = "counter."

// Take reads what belongs in a backup from a data folder and changes nothing there. A headgate may
// be running in it. Each record has the state of the moment when it was read. headgate confirms
// nothing before it is in a record, so a record includes everything confirmed up to then.
func Take(dir, version string) (*Backup, error) {
	v, err := datadir.Format(dir)
	switch {
	case err != nil:
		return nil, err
	case v == 0:
		return nil, &hint.Error{Text: dir + " is no data folder of headgate",
			Do: "name the one of headgate run with --data DIR or --config FILE"}
	case v > datadir.Version:
		return nil, &hint.Error{Text: fmt.Sprintf("%s is of a newer headgate (format %d)", dir, v),
			Do: "take the backup with that headgate"}
	}
	_, running, err := datadir.InUse(dir)
	if err != nil {
		return nil, err
	}
	b := &Backup{Running: running}
	b.manifest = manifest{Format: backupFormat, Version: version, Running: running,
		MadeAt: time.Now().UTC().Truncate(time.Millisecond)}
	if err := b.file(dir, formatName); err != nil {
		return nil, err
	}
	if err := b.records(dir); err != nil {
		return nil, err
	}
	for _, log := range store.Logs(filepath.Join(dir, "engine")) {
		if name, ok := strings.CutSuffix(log, "_jobs"); ok && !strings.HasPrefix(name, config.WebhookQueue) {
			b.Queues = append(b.Queues, name)
		}
	}
	// The keys are read last: everything in the records was sealed by one of them.
	if err := b.keys(dir); err != nil {
		return nil, err
	}
	err = b.file(dir, tokensName)
	b.Tokens = err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return b, nil
}

func (b *Backup) add(m member) {
	b.Bytes += len(m.body)
	b.manifest.Members = append(b.manifest.Members, m)
}

func (b *Backup) file(dir, name string) error {
	body, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return &hint.Error{Text: "a file cannot be read", Err: err,
			Do: "run this as headgate's user, who owns the data folder"}
	}
	if len(body) > maxMember {
		return &hint.Error{Text: filepath.Join(dir, name) + " is larger than 2 MB",
			Do: "it is not headgate's: remove it"}
	}
	b.add(member{Name: name, body: body})
	return nil
}

// records adds the newest whole copy of each record. A damaged copy beside a whole one is a warning
// only.
func (b *Backup) records(dir string) error {
	all, err := store.ReadCopies(filepath.Join(dir, "records"))
	if errors.Is(err, fs.ErrNotExist) {
		b.Warnings = append(b.Warnings, "there are no records: headgate has not run here yet")
		return nil
	}
	if err != nil {
		return &hint.Error{Text: "the records cannot be read", Err: err,
			Do: "run this as headgate's user, who owns the data folder"}
	}
	for i := range all {
		c := &all[i]
		bad := strings.Join(c.Damaged(), ", ")
		switch {
		case !c.Whole() && bad == "":
			continue // created, but not yet written
		case !c.Whole():
			b.Damaged = append(b.Damaged, Loss{c.Key, bad})
			continue
		case bad != "":
			b.Warnings = append(b.Warnings, "records/"+bad+" is damaged: the other copy was taken")
		}
		if room, ok := strings.CutPrefix(c.Key, counterKey); ok {
			b.Rooms = append(b.Rooms, room)
			if err := new(slot.Record).UnmarshalBinary(c.Value); err != nil {
				b.Warnings = append(b.Warnings, fmt.Sprintf("the record of room %s: %v", room, err))
			}
		}
		b.add(member{Name: recordsDir + store.RecordName(c.Key), body: c.Value,
			Written: c.Written.UTC()})
	}
	return nil
}

// keys adds the sealing keys. Without any, a restore would make every visitor a newcomer.
func (b *Backup) keys(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, "keys"))
	if err != nil {
		return &hint.Error{Text: "the sealing keys cannot be read", Err: err,
			Do: "run this as headgate's user, who owns the data folder"}
	}
	for _, e := range entries {
		if _, err := datadir.KeyID(e.Name()); err != nil {
			continue
		}
		err := b.file(dir, keysDir+e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by a rotation meanwhile
		}
		if err != nil {
			return err
		}
		last := &b.manifest.Members[len(b.manifest.Members)-1]
		if _, err := datadir.ParseKey(e.Name(), last.body); err != nil {
			b.Bytes -= len(last.body)
			b.manifest.Members = slices.Delete(b.manifest.Members,
				len(b.manifest.Members)-1, len(b.manifest.Members))
			b.Warnings = append(b.Warnings, "keys/"+e.Name()+" is damaged: it was left out")
			continue
		}
		b.Keys++
	}
	if b.Keys == 0 {
		return &hint.Error{Text: "there is no sealing key in " + filepath.Join(dir, "keys"),
			Do: "headgate doctor --data " + dir + " says more"}
	}
	return nil
}

// WriteTo writes the backup.
func (b *Backup) WriteTo(w io.Writer) (int64, error) {
	var buf bytes.Buffer
	if err := b.manifest.write(&buf); err != nil {
		return 0, err
	}
	return buf.WriteTo(w)
}

// Save writes the backup to a file that only its owner can read, and returns when it is on the
// disk. After a crash the file is complete or does not exist.
func (b *Backup) Save(file string, force bool) error {
	if _, err := os.Lstat(file); err == nil && !force {
		return &hint.Error{Text: file + " is there already", Do: "name another file, or add --force"}
	}
	fail := func(err error) error {
		return &hint.Error{Text: "the backup cannot be written", Err: err,
			Do: "name a file in a folder that this user may write, on a disk with room"}
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".headgate-backup-") // 0600
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp.Name())
	_, err = b.WriteTo(tmp)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fail(err)
	}
	if err = rename(tmp.Name(), file, force); err == nil {
		err = platform.SyncDir(filepath.Dir(file))
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// rename replaces an existing file only if force is set. Somebody may have created it since the
// caller looked, so rename uses a link, which fails if the name exists. On a file system without
// links, it overwrites that file.
func rename(old, file string, force bool) error {
	if !force {
		err := os.Link(old, file)
		if err == nil {
			return os.Remove(old)
		}
		if errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Rename(old, file)
}
