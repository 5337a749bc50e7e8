package events

import (
	"testing"
	"time"
)

func clock(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		panic(err)
	}
	return t
}

// TestAt checks a day with several events.
func TestAt(t *testing.T) {
	day := func(hour string) time.Time { return clock("2026-12-01 " + hour) }
	list := []Event{
		{Name: "long", Start: day("08:00"), End: day("20:00")},
		{Name: "sale", Prequeue: day("09:30"), Start: day("10:00"), End: day("12:00"), Shuffle: true},
		{Name: "off", Start: day("08:30"), End: day("19:00"), Suspended: true},
		{Name: "twin", Start: day("10:00"), End: day("10:30")},
		{Name: "weekly", Prequeue: day("21:00"), Start: day("21:10"), End: day("22:00"),
			Every: 7 * 24 * time.Hour, Shuffle: true},
	}
	for _, x := range []struct {
		now, on  string
		prequeue bool
		draw     string
	}{
		{"2026-12-01 07:59", "", false, "sale"},
		{"2026-12-01 08:00", "long", false, "sale"},
		{"2026-12-01 09:29", "long", false, "sale"},
		{"2026-12-01 09:30", "sale", true, "sale"},
		{"2026-12-01 09:59", "sale", true, "sale"},
		{"2026-12-01 10:00", "twin", false, "sale"},
		{"2026-12-01 10:30", "sale", false, "sale"},
		{"2026-12-01 12:00", "long", false, "weekly@2026-12-01T21:10:00Z"},
		{"2026-12-01 20:00", "", false, "weekly@2026-12-01T21:10:00Z"},
		{"2026-12-01 21:00", "weekly@2026-12-01T21:10:00Z", true, "weekly@2026-12-01T21:10:00Z"},
		{"2026-12-01 21:10", "weekly@2026-12-01T21:10:00Z", false, "weekly@2026-12-01T21:10:00Z"},
		{"2026-12-01 22:00", "", false, "weekly@2026-12-08T21:10:00Z"},
		{"2026-12-08 20:59", "", false, "weekly@2026-12-08T21:10:00Z"},
		{"2026-12-08 21:05", "weekly@2026-12-08T21:10:00Z", true, "weekly@2026-12-08T21:10:00Z"},
		{"2027-11-30 21:59", "weekly@2027-11-30T21:10:00Z", false, "weekly@2027-11-30T21:10:00Z"},
	} {
		m := At(list, clock(x.now))
		on, draw := "", ""
		if m.Active != nil {
			on = m.Active.Key
			if now := clock(x.now); now.Before(m.Active.begin()) || !now.Before(m.Active.End) {
				t.Errorf("%s: %s is not on then", x.now, on)
			}
		}
		if m.Draw != nil {
			draw = m.Draw.Key
		}
		if on != x.on || m.Prequeue != x.prequeue || draw != x.draw {
			t.Errorf("%s: on %q, prequeue %v, draw %q; want %q, %v, %q", x.now, on, m.Prequeue, draw,
				x.on, x.prequeue, x.draw)
		}
	}
}
