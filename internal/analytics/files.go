package analytics

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// These are the file name suffixes: a day's minutes as they arrive, its minutes and its hours as
// columns, and damaged files.
const (
	logEnd    = ".log"
	minuteEnd = ".minutes"
	hourEnd   = ".hours"
	brokenEnd = ".damaged"
	newEnd    = ".new"

	daySeconds  = 86400
	hourSeconds = 3600
	mostBroken  = 10 // damaged files that are kept
)

func dayOf(unix int64) int64 { return unix / daySeconds }

func (k *Recorder) path(day int64, end string) string {
	return filepath.Join(k.cfg.Dir, time.Unix(day*daySeconds, 0).UTC().Format(time.DateOnly)+end)
}

// days returns the days that have a file with this suffix, in order.
func (k *Recorder) days(end string) (all []int64) {
	entries, _ := os.ReadDir(k.cfg.Dir) // no entries: the folder does not exist
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), end)
		if at, err := time.Parse(time.DateOnly, name); ok && err == nil {
			all = append(all, dayOf(at.Unix()))
		}
	}
	slices.Sort(all)
	return all
}

// openLog opens the log of a day, and sets a damaged one aside. The lock is held.
func (k *Recorder) openLog(day int64) bool {
	path := k.path(day, logEnd)
	l, cut, err := openLog(path)
	if _, damaged := errors.AsType[*fileError](err); damaged {
		k.setAside(path, err)
		k.saveGood(path)
		l, cut, err = openLog(path)
	}
	if err == nil && k.holds(day, l.id) { // a kill came before it was removed
		err = errors.Join(l.close(), os.Remove(path))
		if err == nil {
			l, cut, err = openLog(path)
		}
	}
	if err != nil {
		k.complain("analytics are not recorded: cannot open their file", err)
		return false
	}
	if cut > 0 {
		k.cfg.Log.Info("removed the incomplete end of the analytics file: at most one minute is lost", "file", path,
			"bytes", cut)
	}
	k.log, k.day = l, day
	return true
}

// holds reports whether the columns of a day include a log.
func (k *Recorder) holds(day int64, id [idSize]byte) bool {
	d, err := openDay(k.path(day, minuteEnd))
	if err != nil {
		return false
	}
	defer d.close()
	return slices.Contains(d.ids, id)
}

// saveGood writes a log again with the part before the damage.
func (k *Recorder) saveGood(path string) {
	b, err := os.ReadFile(path + brokenEnd)
	if err != nil {
		return
	}
	x := &logReader{b: b, file: path}
	good := int64(0)
	for x.next() && x.err == nil {
		for range x.rows() {
		}
		if x.err == nil {
			good = x.good
		}
	}
	if good == 0 {
		return
	}
	if err := os.WriteFile(path, b[:good], 0o600); err != nil {
		k.complain("analytics from before the damage are lost", err)
	}
}

// setAside moves a damaged file away. A file of a newer headgate stays.
func (k *Recorder) setAside(path string, why error) {
	err := os.Rename(path, path+brokenEnd)
	k.cfg.Log.Error("an analytics file is damaged and was set aside", "file", path+brokenEnd, "why", why,
		"error", err, "hint", "its data is missing in charts; delete the file, or restore it from a backup")
}

// tidy converts the logs of days other than day to columns, and deletes what is too old or too
// much. The lock is held.
func (k *Recorder) tidy(day int64) {
	for _, d := range k.days(logEnd) {
		if d == day || k.log != nil && d == k.day {
			continue
		}
		if err := k.finish(d); err != nil {
			k.complain("cannot compress a day of analytics; it stays a log", err)
		}
	}
	k.forget(k.days(minuteEnd), k.cfg.Days, minuteEnd)
	k.forget(k.days(hourEnd), k.cfg.Hours, hourEnd)
	k.shrink()
}

// forget deletes all but the newest n days. It counts days instead of comparing ages, so that a
// clock that is wrong for a moment deletes nothing.
func (k *Recorder) forget(all []int64, n int, end string) {
	for _, d := range all[:max(0, len(all)-n)] {
		os.Remove(k.path(d, end)) // a file that stays is deleted next time
	}
}

// rank returns the order in which files are deleted, or -1 for foreign files.
func rank(name string) int {
	return slices.Index([]string{newEnd, brokenEnd, minuteEnd, hourEnd, logEnd}, filepath.Ext(name))
}

// files returns all files, in the order in which they are deleted when there is too much.
func (k *Recorder) files() (all []fs.FileInfo, bytes int64) {
	entries, _ := os.ReadDir(k.cfg.Dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && rank(e.Name()) >= 0 {
			all, bytes = append(all, info), bytes+info.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(cmp.Compare(rank(a.Name()), rank(b.Name())), cmp.Compare(a.Name(), b.Name()))
	})
	return all, bytes
}

// shrink deletes files until there is space for a day like the largest log.
func (k *Recorder) shrink() {
	all, bytes := k.files()
	broken := 0
	for _, f := range slices.Backward(all) {
		if strings.HasSuffix(f.Name(), brokenEnd) {
			if broken++; broken > mostBroken && os.Remove(filepath.Join(k.cfg.Dir, f.Name())) == nil {
				bytes -= f.Size()
			}
		}
	}
	for _, f := range all {
		if bytes <= k.cfg.MaxBytes*9/10 || strings.HasSuffix(f.Name(), logEnd) {
			return
		}
		if err := os.Remove(filepath.Join(k.cfg.Dir, f.Name())); err == nil {
			bytes -= f.Size()
			k.cfg.Log.Warn("deleted old analytics: together they exceeded max_bytes", "file", f.Name(),
				"max_bytes", k.cfg.MaxBytes, "hint", "raise analytics.max_bytes, or lower analytics.keep")
		}
	}
}

// full reports whether nothing more may be written, even after deleting what is old.
func (k *Recorder) full() bool {
	if _, bytes := k.files(); bytes < k.cfg.MaxBytes {
		return false
	}
	k.shrink()
	_, bytes := k.files()
	return bytes >= k.cfg.MaxBytes
}

// A finished is a completed day: what a log is converted to.
type finished struct {
	k    *Recorder
	day  int64
	log  []byte
	id   [idSize]byte
	at   map[Series][]place // positions of its rows in the log
	days []*dayReader       // columns that existed before
}

// A place is the position of a row in a log.
type place struct {
	minute   int64
	from, to int
}

// finish merges a log into the columns of its day, and removes the log. The columns record which
// logs they include, so that a kill in between does not add a log twice.
func (k *Recorder) finish(day int64) error {
	path := k.path(day, logEnd)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	x := &finished{k: k, day: day, log: b, at: map[Series][]place{}}
	if err := x.scan(path); err != nil {
		return err
	}
	old, err := k.open(k.path(day, minuteEnd))
	if err != nil {
		return err
	}
	if old != nil {
		defer old.close()
		x.days = append(x.days, old)
		if slices.Contains(old.ids, x.id) { // a kill came before the log was removed
			x.at = map[Series][]place{}
		}
	} else if hours, err := k.open(k.path(day, hourEnd)); err != nil {
		return err
	} else if hours != nil { // of a day whose minutes were deleted already
		defer hours.close()
		x.days = append(x.days, hours)
	}
	if len(x.at) > 0 || len(x.days) > 0 {
		if err := x.write(); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

// scan finds the rows of a log. It sets a damaged log aside and uses the intact part.
func (x *finished) scan(path string) error {
	r := &logReader{b: x.log, file: path}
	for r.next() {
		for n, body := range r.rows() {
			to := int(r.good) - r.rest.Len()
			x.at[r.names[n]] = append(x.at[r.names[n]], place{r.minute, to - len(body), to})
		}
	}
	x.id = r.id
	if errors.Is(r.err, errNewer) {
		return r.err
	}
	if r.err != nil {
		x.k.setAside(path, r.err)
		return os.WriteFile(path, x.log[:headSize], 0o600) // so that there is a file to remove
	}
	return nil
}

// open opens columns. It returns nil if there are none, or if they are damaged and set aside.
func (k *Recorder) open(path string) (*dayReader, error) {
	d, err := openDay(path)
	if _, damaged := errors.AsType[*fileError](err); damaged {
		k.setAside(path, err)
		return nil, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return d, err
}

// write writes the files of the day.
func (x *finished) write() error {
	from, to := x.day*daySeconds, (x.day+1)*daySeconds
	names := map[Series]bool{}
	ids := [][idSize]byte{}
	for _, d := range x.days {
		for i := range d.all {
			names[d.all[i].Series] = true
		}
		if d.step == 60 {
			ids = d.ids
		}
	}
	for s := range x.at {
		names[s] = true
	}
	minutes, hours := newDayWriter(), newDayWriter()
	fine, coarse := newGrid(Room, from, to, 60), newGrid(Room, from, to, hourSeconds)
	order := slices.SortedFunc(maps.Keys(names), func(a, b Series) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range order {
		if columns, _ := s.Kind.columns(); columns == nil {
			continue
		}
		fine.reset(s.Kind)
		coarse.reset(s.Kind)
		for _, d := range x.days {
			if err := errors.Join(d.add(fine, s), d.add(coarse, s)); err != nil {
				x.k.setAside(d.file, err) // the readable part is still used
			}
		}
		for _, p := range x.at[s] {
			for _, g := range []*grid{fine, coarse} {
				r := newReader(x.log[p.from:p.to])
				r.body(g, p.minute*60)
			}
		}
		fine.gather()
		if err := errors.Join(minutes.series(s.Name, fine), hours.series(s.Name, coarse)); err != nil {
			return err
		}
	}
	if !slices.Contains(ids, x.id) {
		ids = append(slices.Clone(ids), x.id)
	}
	err := x.k.replace(x.k.path(x.day, minuteEnd), minutes.end(from, 60, ids))
	if err == nil {
		err = x.k.replace(x.k.path(x.day, hourEnd), hours.end(from, hourSeconds, ids))
	}
	return err
}

// replace writes a file atomically: it exists completely or not at all.
func (k *Recorder) replace(path string, b []byte) error {
	f, err := os.OpenFile(path+newEnd, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && !k.lazy {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+newEnd, path)
}
