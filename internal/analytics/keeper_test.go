package analytics

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/histogram"
)

// A stage is a folder, a clock that may be stepped, and a room and a limit that are counted.
type stage struct {
	t       *testing.T
	dir     string
	mu      sync.Mutex    // guards what is changed while a keeper looks
	ahead   time.Duration // of the wall clock
	values  [roomColumns]int64
	tallies [roomTallies]*histogram.Histogram
	refused int64
	log     bytes.Buffer
	max     int64
	busy    map[int]Row
	lazy    bool
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, dir: filepath.Join(t.TempDir(), "analytics"), max: 1 << 30}
	s.values[RoomSeen] = 1
	for i := range s.tallies {
		s.tallies[i] = &histogram.Histogram{}
	}
	return s
}

func (s *stage) wall() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

// change changes what is counted while a keeper looks.
func (s *stage) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *stage) keeper() *Recorder {
	k := New(Config{Dir: s.dir, Days: 30, Hours: 365, MaxBytes: s.max, Wall: s.wall,
		Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		Read: func(give func(*Sample)) {
			s.mu.Lock()
			defer s.mu.Unlock()
			give(&Sample{Series{Room, "shop"}, slices.Clone(s.values[:]), s.tallies[:]})
			give(&Sample{Series{Limit, "api"}, []int64{0, s.refused, 0, 0}, nil})
		}})
	k.lazy = s.lazy
	return k
}

// run runs a keeper for some time, and ends it cleanly or not at all.
func (s *stage) run(d time.Duration, clean bool) {
	k := s.keeper()
	ctx, stop := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	time.Sleep(d)
	stop()
	<-done
	if clean {
		k.Close()
	} else if k.log != nil {
		k.log.f.Close() // what a kill leaves
	}
}

// ask reads a room between two times of the day, as one who looks at the folder alone.
func (s *stage) ask(series Series, from, to time.Time, step int64) []Row {
	s.t.Helper()
	k := New(Config{Dir: s.dir, Days: 30, Hours: 365, MaxBytes: s.max, Wall: s.wall,
		Read: func(func(*Sample)) {}, Log: slog.New(slog.NewTextHandler(&s.log, nil))})
	rows, err := k.Rows(&Query{series, from.Unix() / step * step, to.Unix(), step})
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}

func sumOf(rows []Row, col int) (n int64) {
	for i := range rows {
		n += rows[i].Values[col]
	}
	return n
}

// bubble runs a test at a whole minute of a fake clock.
func bubble(t *testing.T, f func(*testing.T, *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newStage(t)) })
}

func TestMinutesAreWhatWasCounted(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		began := time.Now()
		k := s.keeper()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); k.Run(ctx) }()
		for minute := range 5 {
			time.Sleep(time.Second)
			s.change(func() {
				s.values[RoomActive], s.values[RoomActiveMax] = int64(10*minute), int64(10*minute)
				s.values[RoomAdmitted] += int64(minute)
				s.tallies[RoomWaited].Add(time.Duration(minute) * time.Second)
				s.refused += 7
			})
			time.Sleep(59 * time.Second)
		}
		synctest.Wait()
		rows, err := k.Rows(&Query{Series{Room, "shop"}, began.Unix(), began.Unix() + 600, 60})
		if err != nil || len(rows) < 5 {
			t.Fatal(rows, err)
		}
		for i := range 5 {
			v := rows[i].Values
			if v[RoomAdmitted] != int64(i) || v[RoomActiveMax] != int64(10*i) ||
				rows[i].count(RoomWaited) != 1 || v[RoomSeen] != 60 || v[RoomActive] != int64(600*i) {
				t.Errorf("minute %d: %v %v", i, v, rows[i].Tallies)
			}
		}
		rows, err = k.Rows(&Query{Series{Limit, "api"}, began.Unix(), began.Unix() + 600, 300})
		if err != nil || len(rows) != 1 || rows[0].Values[LimitRefused] != 35 {
			t.Error(rows, err)
		}
		s.change(func() { s.refused += 5 }) // in the minute that goes on
		rows, _ = k.Rows(&Query{Series{Limit, "api"}, began.Unix(), began.Unix() + 600, 60})
		if n := sumOf(rows, LimitRefused); n != 40 {
			t.Errorf("%d refused, want 40", n)
		}
		stop()
		<-done
		k.Close()
		if n := sumOf(s.ask(Series{Limit, "api"}, began, began.Add(time.Hour), 60), LimitRefused); n != 40 {
			t.Errorf("%d refused after the end, want 40", n)
		}
	})
}

// Who is started again in the middle of a minute has one point for it, and loses nothing.
func TestARestartLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		began := time.Now()
		for range 6 {
			s.values[RoomAdmitted] = 3 // counters begin anew with each process
			s.run(20*time.Second, true)
			s.values[RoomAdmitted] = 0
		}
		rows := s.ask(Series{Room, "shop"}, began, began.Add(time.Hour), 60)
		if len(rows) != 2 || sumOf(rows, RoomAdmitted) != 18 {
			t.Error(rows)
		}
	})
}

// A kill takes what was counted in the minute that went on, and no more.
func TestAKillTakesAMinuteAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		began := time.Now()
		go func() {
			for range 300 {
				s.change(func() { s.values[RoomAdmitted]++ })
				time.Sleep(time.Second)
			}
		}()
		s.run(299*time.Second, false)
		rows := s.ask(Series{Room, "shop"}, began, began.Add(time.Hour), 60)
		if n := sumOf(rows, RoomAdmitted); n < 240 || len(rows) != 4 {
			t.Errorf("%d of 299 in %d minutes", n, len(rows))
		}
		time.Sleep(2 * time.Second)
	})
}

// However much of the last write is missing, what is before is there, and it goes on.
func TestATornEndIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		began := time.Now()
		s.values[RoomAdmitted] = 1
		s.run(61*time.Second, false)
		first := s.file(t, logEnd)
		s.values[RoomAdmitted] = 0 // another process
		s.run(60*time.Second, false)
		all := s.file(t, logEnd)
		if len(all) <= len(first) {
			t.Fatal("nothing was written")
		}
		for n := len(first); n < len(all); n++ {
			s.put(t, logEnd, all[:n])
			rows := s.ask(Series{Room, "shop"}, began, began.Add(time.Hour), 60)
			if sumOf(rows, RoomAdmitted) != 1 {
				t.Fatalf("of %d bytes: %v", n, rows)
			}
			l, cut, err := openLog(filepath.Join(s.dir, began.UTC().Format(time.DateOnly)+logEnd))
			if err != nil || int(cut) != n-len(first) {
				t.Fatal(n, cut, err)
			}
			l.close()
			if left := len(s.file(t, logEnd)); left != len(first) {
				t.Fatalf("%d bytes are left, want %d", left, len(first))
			}
		}
		for _, zeros := range []int{1, 100, 5000} { // as some file systems leave it
			s.put(t, logEnd, append(slices.Clone(first), make([]byte, zeros)...))
			l, cut, err := openLog(filepath.Join(s.dir, began.UTC().Format(time.DateOnly)+logEnd))
			if err != nil || int(cut) != zeros {
				t.Fatal(zeros, cut, err)
			}
			l.close()
		}
	})
}

// A log that is damaged in the middle is set aside; what is before the damage goes on, and so does
// the keeping.
func TestADamagedLogIsSetAside(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		began := time.Now()
		s.values[RoomAdmitted] = 1
		s.run(61*time.Second, false)
		first := len(s.file(t, logEnd))
		s.values[RoomAdmitted] = 0
		s.run(4*time.Minute, false)
		b := s.file(t, logEnd)
		b[first+9] ^= 0x40
		s.put(t, logEnd, b)
		s.values[RoomAdmitted] = 5
		s.run(time.Minute, true)
		rows := s.ask(Series{Room, "shop"}, began, began.Add(time.Hour), 60)
		if n := sumOf(rows, RoomAdmitted); n != 6 {
			t.Errorf("%d admitted, want what is before the damage and after: %v", n, rows)
		}
		if !bytes.Equal(s.file(t, logEnd+brokenEnd), b) || !strings.Contains(s.log.String(), "set aside") {
			t.Error("the damaged file is not there, or nobody was told")
		}
		for _, junk := range []string{"junk", strings.Repeat("junk", 1000)} {
			s.put(t, logEnd, []byte(junk))
			s.values[RoomAdmitted] = 0
			s.run(time.Minute, true)
		}
	})
}

// A folder that cannot be written is no reason for anything but a line.
func TestAFolderThatCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		if err := os.WriteFile(s.dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.run(3*time.Minute, true)
		if !strings.Contains(s.log.String(), "analytics are not recorded") {
			t.Error(s.log.String())
		}
	})
}

func TestTheClockIsStepped(t *testing.T) {
	for _, step := range []time.Duration{-time.Minute, -time.Hour, -26 * time.Hour,
		-20 * 365 * 24 * time.Hour, time.Minute, time.Hour, 26 * time.Hour, 40 * 365 * 24 * time.Hour,
		90 * time.Second, -59 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *stage) {
				s.ahead = 30 * 365 * 24 * time.Hour // not before 1970 when it is set back
				began := s.wall()
				k := s.keeper()
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); k.Run(ctx) }()
				for i := range 600 {
					time.Sleep(time.Second)
					s.change(func() {
						s.values[RoomAdmitted]++
						if i == 300 {
							s.ahead += step
						}
					})
				}
				stop()
				<-done
				k.Close()
				from, to := began.Add(min(step, 0)-time.Hour), began.Add(max(step, 0)+time.Hour)
				rows := s.ask(Series{Room, "shop"}, from, to, max(60, int64(to.Sub(from).Seconds())/1e6*60))
				if n := sumOf(rows, RoomAdmitted); n != 600 {
					t.Errorf("%d admitted, want 600", n)
				}
				for i := 1; i < len(rows); i++ {
					if rows[i].At <= rows[i-1].At {
						t.Errorf("%v after %v", rows[i].At, rows[i-1].At)
					}
				}
				if n := sumOf(rows, RoomSeen); n < 590 || n > 610 {
					t.Errorf("looked at for %d s, want 600", n)
				}
			})
		})
	}
}

// A room that is made anew begins to count anew.
func TestACounterThatBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		k := s.keeper()
		k.load()
		for _, n := range []int64{4, 10, 3, 5, 0, 1} {
			s.values[RoomAdmitted] = n
			k.Collect()
		}
		k.Close()
		now := time.Now()
		if n := sumOf(s.ask(Series{Room, "shop"}, now, now.Add(time.Hour), 60), RoomAdmitted); n != 16 {
			t.Errorf("%d admitted, want 10, 5 and 1", n)
		}
	})
}

// Who slept for hours has not seen anything of them.
func TestStandingStillIsNotLooking(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		s.values[RoomActive] = 9
		k := s.keeper()
		k.load()
		k.Collect()
		began := time.Now()
		time.Sleep(5 * time.Second)
		k.Collect()
		time.Sleep(3 * time.Hour)
		k.Close()
		rows := s.ask(Series{Room, "shop"}, began, began.Add(6*time.Hour), 6*hourSeconds)
		if sumOf(rows, RoomSeen) != 5 || sumOf(rows, RoomActive) != 45 {
			t.Error(rows)
		}
	})
}

// A day becomes columns, and they say what its log said, by minute and by hour.
func TestColumnsSayWhatTheLogSaid(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		began := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		day := dayOf(began.Unix())
		made := s.makeDay(began, 2, 3)
		k := s.keeper()
		var before [][]Row
		ask := func() (all [][]Row) {
			for _, name := range made {
				for _, step := range []int64{300, 3600, 86400} {
					all = append(all, s.ask(Series{Room, name}, began, began.Add(24*time.Hour), step))
				}
			}
			return all
		}
		before = ask()
		same := func(when string, now [][]Row) {
			if !reflect.DeepEqual(before, now) {
				t.Error(when, cmp.Diff(before, now))
			}
		}
		log := s.fileOf(t, began, logEnd)
		k.mu.Lock()
		k.tidy(0)
		k.mu.Unlock()
		same("as columns", ask())
		got := []int{len(k.days(logEnd)), len(k.days(minuteEnd)), len(k.days(hourEnd))}
		if !slices.Equal(got, []int{0, 1, 1}) {
			t.Errorf("files: %v", got)
		}
		// A kill before the log was removed, then more of the same day.
		s.putOf(t, began, logEnd, log)
		k.mu.Lock()
		k.tidy(0)
		k.mu.Unlock()
		same("after a kill", ask())
		s.putOf(t, began, logEnd, log)
		k.mu.Lock()
		if !k.openLog(day) {
			t.Error("the log cannot be opened")
		}
		k.closeLog()
		k.mu.Unlock()
		same("when it goes on", ask())
		s.makeDay(began, 2, 3)
		k.mu.Lock()
		k.tidy(0)
		k.mu.Unlock()
		for i, rows := range ask() {
			if sumOf(rows, RoomAdmitted) != 2*sumOf(before[i], RoomAdmitted) {
				t.Error("what came later is not there")
			}
		}
	})
}

// Columns that are damaged are set aside when they are read, and the rest is answered.
func TestDamagedColumnsAreSetAside(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		began := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		name := s.makeDay(began, 1, 1)[0]
		s.makeDay(began.Add(24*time.Hour), 1, 1)
		k := s.keeper()
		k.mu.Lock()
		k.tidy(0)
		k.mu.Unlock()
		good := s.fileOf(t, began, minuteEnd)
		rows := s.ask(Series{Room, name}, began.Add(24*time.Hour), began.Add(48*time.Hour), 60)
		day2 := sumOf(rows, RoomAdmitted)
		for at := 0; at < len(good); at += 1 + len(good)/41 {
			b := slices.Clone(good)
			b[at] ^= 1
			s.putOf(t, began, minuteEnd, b)
			rows := s.ask(Series{Room, name}, began, began.Add(48*time.Hour), 60)
			if n := sumOf(rows, RoomAdmitted); n != day2 && n != 2*day2 && at > len(dayHead) {
				t.Errorf("byte %d: %d admitted, want %d", at, n, day2)
			}
		}
		if !strings.Contains(s.log.String(), "set aside") {
			t.Error("nobody was told")
		}
		if len(s.fileOf(t, began, minuteEnd+brokenEnd)) == 0 {
			t.Error("the damaged file is not there")
		}
	})
}

func TestOldFilesGo(t *testing.T) {
	bubble(t, func(t *testing.T, s *stage) {
		began := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		for i := range 5 {
			s.makeDay(began.Add(time.Duration(i)*24*time.Hour), 1, 60)
		}
		k := s.keeper()
		k.cfg.Days, k.cfg.Hours = 2, 3
		k.mu.Lock()
		k.tidy(0)
		k.mu.Unlock()
		day := dayOf(began.Unix())
		if d := cmp.Diff([][]int64{{day + 3, day + 4}, {day + 2, day + 3, day + 4}},
			[][]int64{k.days(minuteEnd), k.days(hourEnd)}); d != "" {
			t.Error(d)
		}
		// Of the day whose minutes are gone the hours are told, whatever step is asked for.
		rows := s.ask(Series{Room, "room0"}, began.Add(48*time.Hour), began.Add(72*time.Hour), 60)
		if len(rows) != 24 {
			t.Errorf("%d points, want 24", len(rows))
		}
		s.max = 40 << 10
		k.cfg.MaxBytes = s.max
		s.makeDay(began.Add(5*24*time.Hour), 1, 1)
		k.mu.Lock()
		k.tidy(0)
		k.mu.Unlock()
		if _, bytes := k.files(); bytes > s.max {
			t.Errorf("%d bytes, at most %d may be", bytes, s.max)
		}
		s.makeDay(began.Add(6*24*time.Hour), 1, 60)
		k.cfg.MaxBytes = 1
		if !k.full() {
			t.Error("there is room for more where there is none")
		}
	})
}

func (s *stage) file(t *testing.T, end string) []byte { return s.fileOf(t, time.Now(), end) }

func (s *stage) fileOf(t *testing.T, day time.Time, end string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, day.UTC().Format(time.DateOnly)+end))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *stage) put(t *testing.T, end string, b []byte) { s.putOf(t, time.Now(), end, b) }

func (s *stage) putOf(t *testing.T, day time.Time, end string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, day.UTC().Format(time.DateOnly)+end), b, 0o600); err != nil {
		t.Fatal(err)
	}
}
