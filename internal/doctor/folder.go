package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
)

const (
	noSpace  = 10 << 20  // below this the next block of the engine may not fit
	lowSpace = 100 << 20 // a day of a busy room and its logs; both chosen
	trial    = 64 << 10  // size of the test file
)

// A part is what a data folder is used for.
type part uint8

const (
	alone     part = iota // everything that outlives this process
	inCluster             // the records of a store node
	nothing               // only tokens and the audit log: no records
)

// keeps returns what the folder is used for.
func (x *examiner) keeps() part {
	switch c := x.cfg.Config; {
	case c == nil || c.Cluster == nil && c.Engine == nil:
		return alone
	case c.Cluster != nil && c.Cluster.IsStore():
		return inCluster
	}
	return nothing
}

// oneStore reports whether no other node has the records.
func (x *examiner) oneStore() bool { return len(x.cfg.Config.Cluster.Store) == 1 }

// disk returns the folder where the records grow: the engine's folder may be a separate mount.
func (x *examiner) disk() string {
	dir := filepath.Join(x.cfg.Data, "engine")
	if _, err := os.Stat(dir); err != nil {
		return x.cfg.Data
	}
	return dir
}

// configuration reports what headgate check would report.
func (x *examiner) configuration() {
	c := x.cfg.Config
	switch {
	case x.cfg.ConfErr != nil:
		for _, f := range config.Faults(x.cfg.ConfErr) {
			x.say(Fault, f.Error(), f.Hint)
		}
	case c != nil && len(c.Warnings) == 0:
		x.ok("%s is good, rooms: %d", c.File, len(c.Rooms))
	case c != nil:
		for i := range c.Warnings {
			x.say(Warning, c.Warnings[i].Error(), c.Warnings[i].Hint)
		}
	}
}

// folder checks whether there is a folder that this headgate can use.
func (x *examiner) folder() {
	dir := x.cfg.Data
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && x.keeps() == inCluster:
		x.fresh = true
		do := "before the first start that is right; else name it: --data DIR; "
		if x.oneStore() {
			do += "if it is lost, so are the records"
		} else {
			do += "if it is lost, the others give this node the records"
		}
		x.say(Warning, dir+" is not there", do)
		return
	case errors.Is(err, fs.ErrNotExist) && x.keeps() == nothing:
		x.fresh = true
		x.ok("%s is not there: headgate run makes it; the records are elsewhere", dir)
		return
	case errors.Is(err, fs.ErrNotExist):
		x.say(Fault, dir+" is not there", "name the folder of headgate run with --data DIR or "+
			"--config FILE; headgate run makes it when it starts for the first time")
		return
	case err != nil:
		x.say(Fault, err.Error(), "run this as headgate's user, who owns the data folder")
		return
	case !info.IsDir():
		x.say(Fault, dir+" is no folder", "name the folder of headgate run with --data DIR")
		return
	}
	v, err := datadir.Format(dir)
	switch {
	case err != nil:
		x.err(err, "")
	case v == 0:
		x.say(Fault, dir+" is no data folder of headgate: it has no file format",
			"name the folder of headgate run with --data DIR or --config FILE")
	case v > datadir.Version:
		x.say(Fault, fmt.Sprintf("%s is of a newer headgate (format %d, this one knows %d)",
			dir, v, datadir.Version), "run the newer headgate; this one leaves the folder as it is")
	case !platform.IsPrivate(info.Mode()):
		x.say(Warning, fmt.Sprintf("%s may be read by others (mode %04o)", dir, info.Mode().Perm()),
			"chmod 700 "+dir)
	default:
		x.ok("%s, format %d", dir, v)
	}
}

// writable writes a small file and removes it. It also looks for files that another user owns: they
// appear when root runs a command in the folder, and headgate cannot write them.
func (x *examiner) writable() {
	dir := x.cfg.Data
	if err := tryWrite(dir); err != nil {
		x.say(Fault, dir+" cannot be written: "+plain(err), whyNot(err))
		return
	}
	owner, err := uidOf(dir)
	if err != nil {
		x.say(Fault, err.Error(), "run this as headgate's user, who owns the data folder")
		return
	}
	var foreign []string
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return ignoreGone(err)
		}
		if uid, err := uidOf(path); err == nil && uid != owner {
			foreign = append(foreign, path)
		}
		return nil
	})
	switch {
	case err != nil:
		x.say(Fault, err.Error(), "run this as headgate's user, who owns the data folder")
	case len(foreign) > 0:
		x.say(Fault, fmt.Sprintf("%s and %d more belong to another user than the folder does",
			foreign[0], len(foreign)-1), fmt.Sprintf("chown -R --reference=%s %s", dir, dir))
	default:
		x.ok("what is written there arrives")
	}
}

func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, trial))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// ignoreGone drops the error for a file that headgate has removed meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func uidOf(path string) (int, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	uid, _, _ := platform.Owner(info) // without owners, all files have the same
	return uid, nil
}

func plain(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

func whyNot(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "the disk is full: make room, headgate goes on by itself within seconds"
	case errors.Is(err, syscall.EDQUOT):
		return "the quota of this user is used up: make room, headgate goes on by itself within seconds"
	case errors.Is(err, syscall.EROFS):
		return "the file system is read-only: see what the kernel says (dmesg), then remount it " +
			"for writing, headgate goes on by itself within seconds"
	case errors.Is(err, fs.ErrPermission):
		return "run this as headgate's user; if it was, give that user the folder: chown -R USER DIR"
	}
	return "see what the kernel says of the disk (dmesg)"
}

// space checks how much disk space this user has left.
func (x *examiner) space() {
	free, _, err := platform.Space(x.disk())
	if err != nil {
		x.say(Skipped, "the free space cannot be told: "+err.Error(), "")
		return
	}
	switch text := size(int64(free)) + " left"; {
	case x.keeps() == nothing && free < noSpace:
		x.say(Warning, text, "make room: visitors do not depend on it, but changes that are asked of this "+
			"process are refused while its audit log cannot be written")
	case x.keeps() == nothing:
		x.ok("%s; the records are elsewhere", text)
	case free < noSpace:
		x.say(Fault, text, "the disk is full or nearly so: make room, headgate goes on by itself "+
			"within seconds")
	case free < x.cfg.lowSpace:
		x.say(Warning, text, "make room before it is full: then newcomers are not admitted")
	default:
		x.ok("%s", text)
	}
}

func size(n int64) string {
	switch {
	case n < 1<<20:
		return fmt.Sprintf("%d KB", (n+1023)>>10)
	case n < 1<<30:
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/(1<<30))
}

// process checks whether a headgate runs in the folder, and requests its state.
func (x *examiner) process(ctx context.Context) {
	pid, used, err := datadir.InUse(x.cfg.Data)
	if err != nil {
		x.err(err, "")
		return
	}
	x.pid, x.running = pid, used
	if !used {
		x.ok("none works in the folder")
		return
	}
	who := "one works in the folder"
	if pid > 0 {
		who = fmt.Sprintf("process %d works in the folder", pid)
	}
	if x.cfg.Ask == nil {
		x.ok("%s", who)
		return
	}
	r, err := x.cfg.Ask(ctx)
	if err != nil {
		x.say(Skipped, who+" and could not be asked: "+err.Error(), hint.Of(err))
		return
	}
	if !sameFolder(r.About.Data, x.cfg.Data) {
		x.say(Skipped, fmt.Sprintf("%s; the one that answered works in %s", who, r.About.Data),
			"name the right one: --admin http://HOST:PORT")
		return
	}
	x.heard = r
	x.ok("%s, version %s, since %s", who, r.About.Version, r.About.StartedAt.Format(time.RFC3339))
	x.rooms(r)
}

// rooms reports the faults that the running process reports.
func (x *examiner) rooms(r *Running) {
	if e := r.About.LastReload.Error; e != "" {
		x.say(Warning, "its last reload failed: "+e, "headgate check --config FILE says more")
	}
	for i := range r.Rooms {
		s := &r.Rooms[i]
		if s.Record.Damaged != "" {
			x.say(Fault, fmt.Sprintf("room %s is shut: its record cannot be read: %s", s.Name, s.Record.Damaged),
				"see records; stop headgate to see whether its engine has it")
		}
		if s.Record.WriteFailing > 0 {
			x.say(Fault, fmt.Sprintf("room %s: its record has not been written for %.0f s", s.Name,
				s.Record.WriteFailing), "passes are valid, newcomers are not admitted: see writable and free space")
		}
		if s.Record.Quiet > 0 {
			x.say(Warning, fmt.Sprintf("room %s: newcomers are not admitted for another %.0f s, because its "+
				"record may be older than what visitors were told", s.Name, s.Record.Quiet),
				"wait; after a restore this is as it should be")
		}
	}
}

func sameFolder(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// keys checks the sealing keys.
func (x *examiner) keys() {
	if x.keeps() != alone {
		x.ok("in the records, the same for all nodes")
		return
	}
	dir := filepath.Join(x.cfg.Data, "keys")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		x.say(Fault, dir+" is not there: to a headgate that starts now every visitor is a newcomer",
			"bring the keys back: headgate restore from a backup, or the folder keys from a copy")
		return
	}
	keys, faults := datadir.LookAtKeys(x.cfg.Data)
	for _, err := range faults {
		x.err(err, "")
	}
	if len(faults) > 0 {
		return
	}
	if len(keys) == 0 {
		x.say(Fault, dir+" holds no key: to a headgate that starts now every visitor is a newcomer",
			"bring the keys back: headgate restore from a backup, or the folder keys from a copy")
		return
	}
	age := x.cfg.Now().Sub(keys[0].Made)
	switch text := fmt.Sprintf("%d, the newest %s old", len(keys), days(age)); {
	case age < -time.Hour:
		x.say(Warning, "the newest sealing key is of tomorrow", "check the clock of this machine")
	case x.running && age > 8*24*time.Hour:
		x.say(Warning, text+": it should have been replaced after 7 days",
			"see the log for \"sealing key not rotated\"")
	default:
		x.ok("%s", text)
	}
}

func days(d time.Duration) string {
	if d < 48*time.Hour {
		return fmt.Sprintf("%d h", int(max(0, d).Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// tokens checks the hashes of API tokens.
func (x *examiner) tokens() {
	path := filepath.Join(x.cfg.Data, tokensName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		x.ok("there are none")
		return
	}
	list, lerr := api.ListTokens(x.cfg.Data)
	switch {
	case err != nil:
		x.say(Fault, err.Error(), "run this as headgate's user, who owns the data folder")
	case lerr != nil:
		x.err(lerr, "bring it back from a backup, or remove it and make new tokens")
	case !platform.IsPrivate(info.Mode()):
		x.say(Warning, fmt.Sprintf("%s may be read by others (mode %04o)", path, info.Mode().Perm()),
			"chmod 600 "+path)
	default:
		x.ok("%d", len(list))
	}
}

// aside lists what repairs and restores have put aside.
func (x *examiner) aside() {
	dir := filepath.Clean(x.cfg.Data)
	damaged, err := filepath.Glob(filepath.Join(escapeGlob(dir), "engine.damaged-*"))
	old, err2 := filepath.Glob(escapeGlob(dir) + ".old-*")
	if err := errors.Join(err, err2); err != nil {
		x.say(Skipped, err.Error(), "")
		return
	}
	for _, path := range damaged {
		x.say(Warning, fmt.Sprintf("%s was damaged and put aside (%s)", path, size(bytesIn(path))),
			"look at the disk (dmesg, smartctl); once all rooms run as they should: rm -r "+path)
	}
	for _, path := range old {
		x.say(Warning, fmt.Sprintf("%s was put aside by a restore (%s)", path, size(bytesIn(path))),
			"it holds sealing keys; once all rooms run as they should: rm -r "+path)
	}
	if len(damaged)+len(old) == 0 {
		x.ok("nothing")
	}
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// bytesIn returns the size of all files in a folder and its subfolders, as far as they can be read.
func bytesIn(dir string) (n int64) {
	// Unreadable files are not counted: the size is only shown, or limits a copy.
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
