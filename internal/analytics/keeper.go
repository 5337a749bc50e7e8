package analytics

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/histogram"
)

// A Config defines where a Recorder stores data, and for how long.
type Config struct {
	Dir      string
	Days     int   // newest days kept by the minute
	Hours    int   // newest days kept by the hour
	MaxBytes int64 // of all files
	// Read calls give with the current values of each series. It may block for some milliseconds.
	Read func(give func(*Sample))
	Log  *slog.Logger
	Wall func() time.Time // nil: time.Now
}

// These are the parameters. Chosen: a look costs some microseconds per room, and a process that
// stood still for longer than late has not observed the time between.
const (
	lookEvery  = 5 * time.Second
	late       = 3 * lookEvery
	mostSeries = 5000
	complain   = 10 * time.Minute // between complaints about failed writes
)

// A Recorder stores analytics. Run must be running.
type Recorder struct {
	cfg  Config
	lazy bool // tests that create months skip syncs

	look sync.Mutex // one look at a time

	mu     sync.RWMutex // guards the rest, and the files
	series map[Series]*follower
	minute int64 // the current one, since the epoch; 0 before the first look
	looked time.Time
	log    *minuteLog
	day    int64 // of log, since the epoch
	told   time.Time
	closed bool
}

// A follower holds the changes of a series since the last minute was written.
type follower struct {
	before  []int64
	counted [][histogram.Buckets]int64
	now     cell
}

// New returns a Recorder. It opens nothing.
func New(cfg Config) *Recorder {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	return &Recorder{cfg: cfg, series: map[Series]*follower{}}
}

// Run reads the counters until ctx ends. The caller must then call Close.
func (k *Recorder) Run(ctx context.Context) {
	k.load()
	k.Collect()
	for {
		now := k.cfg.Wall()
		timer := time.NewTimer(now.Truncate(lookEvery).Add(lookEvery).Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			k.Collect()
		}
	}
}

// load creates the folder and repairs what a kill has left.
func (k *Recorder) load() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := os.MkdirAll(k.cfg.Dir, 0o700); err != nil {
		k.complain("analytics are not recorded: cannot create their folder", err)
	}
	k.tidy(dayOf(k.cfg.Wall().Unix()))
}

// Close reads the counters a last time, and writes the current minute.
func (k *Recorder) Close() {
	k.Collect()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.flush()
	k.closeLog()
}

// Collect reads what was counted since the last look, and writes each finished minute.
func (k *Recorder) Collect() {
	k.look.Lock()
	defer k.look.Unlock()
	var all []*Sample
	k.cfg.Read(func(r *Sample) { all = append(all, r) })
	wall, now := k.cfg.Wall(), time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	var gone time.Duration
	if k.minute > 0 {
		if gone = now.Sub(k.looked); gone > late { // nobody was looking
			gone = 0
		}
	} else {
		k.minute = wall.Unix() / 60
	}
	k.looked = now
	for _, r := range all {
		if f := k.follow(r); f != nil {
			f.take(r, gone.Milliseconds())
		}
	}
	if m := wall.Unix() / 60; m != k.minute {
		k.flush()
		k.minute = m
	}
}

func (k *Recorder) follow(r *Sample) *follower {
	f := k.series[r.Series]
	if f == nil && len(k.series) < mostSeries {
		columns, tallies := r.Kind.columns()
		f = &follower{before: make([]int64, len(columns)), counted: make([][histogram.Buckets]int64, tallies)}
		k.series[r.Series] = f
	}
	return f
}

// take adds the changes since the last look, ms milliseconds ago.
func (f *follower) take(r *Sample, ms int64) {
	columns, _ := r.Kind.columns()
	f.now.known = true
	for i, v := range r.Values {
		switch columns[i] {
		case level:
			f.now.values[i] += v * ms
		case highest:
			f.now.values[i] = max(f.now.values[i], v)
		default:
			f.now.values[i] += since(v, f.before[i])
			f.before[i] = v
		}
	}
	for i, h := range r.Tallies {
		all := h.Read()
		t := f.now.tally(i)
		for b, n := range all {
			t[b] += since(n, f.counted[i][b])
		}
		f.counted[i] = all
	}
}

// since returns the growth of a counter. A counter that fell has restarted.
func since(now, before int64) int64 {
	if now < before {
		return now
	}
	return now - before
}

// row returns the values of the current minute.
func (f *follower) row(kind Kind, minute int64) Row {
	columns, tallies := kind.columns()
	r := Row{At: minute * 60, Values: make([]int64, len(columns)), Tallies: make([][]Bucket, tallies)}
	for i := range columns {
		r.Values[i] = f.now.values[i]
		if columns[i] == level {
			r.Values[i] = (r.Values[i] + 500) / 1000
		}
	}
	for i := range r.Tallies {
		r.Tallies[i] = sparse(f.now.tallies[i])
	}
	return r
}

// empty reports whether a row has no values, apart from current levels.
func (r *Row) empty() bool {
	return !slices.ContainsFunc(r.Values, func(v int64) bool { return v != 0 })
}

// flush writes the minute. The lock is held.
func (k *Recorder) flush() {
	var rows []seriesRow
	for s, f := range k.series {
		if !f.now.known {
			continue
		}
		// A series without any use takes no space: most limits of most nodes are idle.
		if r := f.row(s.Kind, k.minute); !r.empty() {
			rows = append(rows, seriesRow{s, r})
		}
		f.now.clear()
	}
	// Even an empty minute begins a day: tidy then takes care of the files of the earlier ones.
	if day := dayOf(k.minute * 60); day != k.day || k.log == nil {
		k.closeLog()
		k.tidy(day)
		if !k.openLog(day) {
			return
		}
	}
	if len(rows) == 0 {
		return
	}
	if k.full() {
		k.complain("a minute of analytics is not recorded: max_bytes is reached", nil)
		return
	}
	if err := k.log.append(k.minute, rows); err != nil {
		k.complain("a minute of analytics is not recorded: cannot write it", err)
	}
}

func (k *Recorder) closeLog() {
	if k.log == nil {
		return
	}
	if err := k.log.close(); err != nil {
		k.complain("cannot sync the end of the analytics file", err)
	}
	k.log = nil
}

// complain logs an error, at a limited rate.
func (k *Recorder) complain(what string, err error) {
	if !k.told.IsZero() && time.Since(k.told) < complain {
		return
	}
	k.told = time.Now()
	k.cfg.Log.Warn(what, "folder", k.cfg.Dir, "error", err,
		"hint", "rooms and limits work without analytics; check that the disk has free space and is writable")
}
