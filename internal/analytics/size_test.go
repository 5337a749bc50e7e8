package analytics

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/tests/yardstick"
)

// makeDay writes a log of a day as busy rooms have it, a minute in each every minutes.
func (s *stage) makeDay(day time.Time, rooms, every int) (names []string) {
	s.t.Helper()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	k := s.keeper()
	l, _, err := openLog(k.path(dayOf(day.Unix()), logEnd))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.busy == nil {
		s.busy = map[int]Row{}
	}
	busy := func(room, minute int) Row {
		i := room*1440 + minute
		if _, known := s.busy[i]; !known {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			s.busy[i] = busyMinute(rng, float64(200*(1+room)), float64(minute))
		}
		return s.busy[i]
	}
	for i := range rooms {
		names = append(names, fmt.Sprintf("room%d", i))
	}
	for minute := 0; minute < 1440; minute += every {
		var rows []seriesRow
		for i, name := range names {
			r := busy(i%10, (minute+7*i+int(day.Unix()/daySeconds))%1440)
			r.At = day.Unix() + int64(minute)*60
			rows = append(rows, seriesRow{Series{Room, name}, r})
		}
		l.frames = 0 // a test needs no sync
		if err := l.append(day.Unix()/60+int64(minute), rows); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := l.f.Close(); err != nil {
		s.t.Fatal(err)
	}
	return names
}

// busyMinute is a minute of a room with so many users at once, at a time of the day: some 20
// requests a second for a room of 400.
func busyMinute(rng *rand.Rand, users, minute float64) Row {
	load := 0.6 + 0.4*math.Sin(minute/1440*2*math.Pi) // never quiet
	some := func(mean float64) int64 {
		return max(0, int64(mean*load+math.Sqrt(mean*load)*rng.NormFloat64()))
	}
	r := Row{Values: make([]int64, roomColumns), Tallies: make([][]Bucket, roomTallies)}
	v := r.Values
	v[RoomSeen], v[RoomActiveLimit], v[RoomNewLimit] = 60, int64(users), int64(users/2)
	v[RoomActive], v[RoomActiveMax] = some(users*60), some(users)
	v[RoomWaiting], v[RoomWaitingMax] = some(users*90), some(users*2)
	v[RoomAdmitted], v[RoomJoined], v[RoomPolls] = some(users/4), some(users/4), some(users*5)
	v[RoomLeft], v[RoomExpired], v[RoomRevoked] = some(2), some(4), some(users/10)
	v[RoomOrigin2xx], v[RoomOrigin3xx], v[RoomOrigin4xx] = some(users*3), some(users/5), some(users/50)
	v[RoomOrigin5xx] = some(0.2)
	spread := func(n int64, middle time.Duration, width float64) []Bucket {
		var h histogram.Histogram
		for range n {
			h.Add(time.Duration(float64(middle) * math.Exp(width*rng.NormFloat64())))
		}
		all := h.Read()
		return sparse(&all)
	}
	r.Tallies[RoomWaited] = spread(v[RoomAdmitted], time.Duration(load*float64(5*time.Minute)), 0.1)
	r.Tallies[RoomInside] = spread(v[RoomAdmitted], 3*time.Minute, 0.7)
	r.Tallies[RoomSilent] = spread(v[RoomAdmitted], 40*time.Second, 0.7)
	r.Tallies[RoomOrigin] = spread(min(v[RoomOrigin2xx], 300), 60*time.Millisecond, 0.7)
	return r
}

// The budgets: a month of minutes of 100 rooms that are never quiet takes less than 200 MB, and any
// chart of one of them less than 100 ms. There are 20 of them here, and in short tests two for five
// days: each takes as much.
func TestAMonthIsSmallAndFast(t *testing.T) {
	stick := yardstick.Start(t)
	rooms, days := 20, 30
	if testing.Short() {
		rooms, days = 2, 5
	}
	s := newStage(t)
	s.lazy = true
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s.ahead = time.Until(day.Add(time.Duration(days)*24*time.Hour + 12*time.Hour))
	k := s.keeper()
	finish := time.Duration(0)
	for i := range days + 1 { // the last one is today's, not finished
		s.makeDay(day.Add(time.Duration(i)*24*time.Hour), rooms, 1)
		began := time.Now()
		if i < days {
			if err := k.finish(dayOf(day.Unix()) + int64(i)); err != nil {
				t.Fatal(err)
			}
			finish = max(finish, time.Since(began))
		}
	}
	_, bytes := k.files()
	info, err := os.Stat(k.path(dayOf(day.Unix())+int64(days), logEnd))
	if err != nil {
		t.Fatal(err)
	}
	perMinute := float64(bytes-info.Size()) / float64(days*1440*rooms)
	month := perMinute * 30 * 1440 * 100 / 1e6
	t.Logf("%d rooms, %d days: %.1f bytes a minute and room, 100 rooms: %.0f MB a month; today's log %.0f MB; "+
		"a day finished within %v",
		rooms, days, perMinute, month, float64(info.Size())/1e6*100/float64(rooms), finish)
	if month > 200 {
		t.Errorf("%.0f MB, budget 200", month)
	}
	for _, c := range []struct {
		step   int64
		budget bool
	}{{7200, true}, {3600, true}, {1800, true}, {60, false}} { // the last is too long for JSON
		from := day.Unix()
		to := from + int64(days)*daySeconds + 43200
		points, best := chart(t, k, 5, &Query{Series{Room, "room1"}, from, to, c.step})
		t.Logf("step %5d s: %5d points of all metrics in %v", c.step, points, best.Round(time.Microsecond))
		if c.budget && !testing.Short() {
			stick.Judge(t, fmt.Sprintf("a chart in steps of %d s", c.step), best,
				yardstick.Bound{Design: chartBudget, Delays: 20})
		}
	}
}
