package analytics

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/histogram"
)

// times is a histogram of n durations.
func times(n int, d time.Duration) []Bucket {
	return []Bucket{{uint8(histogram.BucketOf(d)), int64(n)}}
}

// quiet are three hours in which nothing is wrong.
func quiet() (rows []Row) {
	for i := range 36 {
		r := Row{At: int64(i) * 300}
		r.Values, r.Tallies = make([]int64, roomColumns), make([][]Bucket, roomTallies)
		v := r.Values
		v[RoomSeen], v[RoomActive], v[RoomActiveMax] = 300, 300*60, 70
		v[RoomAdmitted], v[RoomJoined], v[RoomOrigin2xx] = 50, 20, 500
		v[RoomLeft], v[RoomExpired] = 1, 0
		r.Tallies[RoomInside] = times(50, 10*time.Minute)
		r.Tallies[RoomSilent] = append(times(40, 30*time.Second), times(10, 4*time.Minute)...)
		r.Tallies[RoomOrigin] = times(500, 80*time.Millisecond)
		rows = append(rows, r)
	}
	return rows
}

// Each rule speaks when it should, and only then.
func TestAdvice(t *testing.T) {
	each := func(f func(r *Row)) func([]Row, *RoomSettings) {
		return func(rows []Row, _ *RoomSettings) {
			for i := range rows {
				f(&rows[i])
			}
		}
	}
	full := func(f func(r *Row)) func([]Row, *RoomSettings) { // in a third of the time the room is full
		return func(rows []Row, _ *RoomSettings) {
			for i := range rows[:12] {
				rows[i].Values[RoomActive], rows[i].Values[RoomActiveMax] = 300*95, 100
				f(&rows[i])
			}
		}
	}
	for _, c := range []struct {
		name, code string // "" none
		spoil      func([]Row, *RoomSettings)
	}{
		{"nothing", "", func([]Row, *RoomSettings) {}},
		{"silence near the end", "session_short",
			each(func(r *Row) { r.Tallies[RoomSilent] = times(50, 4*time.Minute) })},
		{"fixed, and as long as a visit", "session_short", func(_ []Row, f *RoomSettings) { f.Renewed = false }},
		{"hardly any silence", "session_long",
			each(func(r *Row) { r.Tallies[RoomSilent] = times(50, 20*time.Second) })},
		{"too few visits", "", func(rows []Row, _ *RoomSettings) {
			for i := range rows {
				rows[i].Tallies[RoomSilent] = times(2, 20*time.Second)
			}
		}},
		{"visitors come again", "session_returns", each(func(r *Row) { r.Values[RoomPassesBack] = 3 })},
		{"some come again", "", each(func(r *Row) { r.Values[RoomPassesBack] = 2 })},
		{"places expire, visitors come again", "hold_short",
			each(func(r *Row) { r.Values[RoomExpired], r.Values[RoomPlacesBack] = 1, 1 })},
		{"places expire, nobody comes again", "", each(func(r *Row) { r.Values[RoomExpired] = 1 })},
		{"many leave", "many_abandon", each(func(r *Row) { r.Values[RoomLeft] = 7 })},
		{"few are ever inside", "limit_never_reached", each(func(r *Row) { r.Values[RoomActiveMax] = 49 })},
		{"half are inside", "", each(func(r *Row) { r.Values[RoomActiveMax] = 50 })},
		{"slow pages", "origin_slow", each(func(r *Row) {
			r.Tallies[RoomOrigin] = append(times(460, 80*time.Millisecond), times(40, 3*time.Second)...)
		})},
		{"slow when full", "limit_too_high",
			full(func(r *Row) { r.Tallies[RoomOrigin] = times(500, 400*time.Millisecond) })},
		{"full, and as fast", "", full(func(*Row) {})},
		{"failing", "origin_fails", each(func(r *Row) { r.Values[RoomOrigin5xx] = 6 })},
		{"not answering", "origin_fails", each(func(r *Row) { r.Values[RoomOriginNone] = 6 })},
	} {
		f := RoomSettings{Room: "shop", Active: 100, New: 10, Renewed: true,
			Session: 5 * time.Minute, Hold: 5 * time.Minute}
		rows := quiet()
		c.spoil(rows, &f)
		var codes []string
		for _, a := range Advise(&f, rows) {
			if a.Room != "shop" || a.Text == "" || a.Action == "" || len(a.Figures) == 0 {
				t.Errorf("%s: poor advice %+v", c.name, a)
			}
			codes = append(codes, a.Code)
		}
		if want := strings.Fields(c.code); !slices.Equal(codes, want) {
			t.Errorf("%s: %q, want %q", c.name, codes, want)
		}
	}
	if all := Advise(&RoomSettings{}, nil); all != nil {
		t.Error(all)
	}
}

// The page names each metric and each advice, and no other metric of a room.
func TestThePageNamesAllMetrics(t *testing.T) {
	b, err := os.ReadFile("../../docs/analytics.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, k := range []Kind{Room, Limit, Queue} {
		for _, m := range Metrics(k) {
			name := m.Name
			if i := strings.LastIndex(name, "P"); i > 0 && len(name) == i+3 && k == Room {
				name = name[:i] + "…"
			}
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/analytics.md does not name %s of a %s", name, k)
			}
		}
	}
	source, err := os.ReadFile("advice.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(source), `Code: "`)[1:] {
		if code, _, _ := strings.Cut(part, `"`); !strings.Contains(page, "`"+code+"`") {
			t.Errorf("docs/analytics.md does not name the advice %s", code)
		}
	}
}
