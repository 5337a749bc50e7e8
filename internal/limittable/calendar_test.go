package limittable

import (
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// Day windows in a zone west of UTC whose clocks change at midnight. For the midnight that does not
// exist, time.Date returns 23:00 of the day before. The window then ended too early, and each call
// from 23:00 on began a new one: no limit at all for an hour.
func TestDayWindowWithoutMidnightLimitsNobody(t *testing.T) {
	for _, of := range []struct{ zone, at string }{
		{"Atlantic/Azores", "2027-03-27 23:30:00"},
		{"America/Havana", "2027-03-13 23:30:00"},
		{"America/Santiago", "2027-09-04 23:30:00"},
	} {
		zone, err := time.LoadLocation(of.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := time.ParseInLocation(time.DateTime, of.at, zone)
		table := newTable(t, limit.Rule{Algorithm: limit.FixedWindow, Amount: 1, Align: limit.Day,
			Zone: zone}, nil, 10)
		passed := 0
		for i := range 1000 {
			if d, _ := table.Take(Time(at.UnixNano())+Time(i)*1e9, 1, "k", 1); d.Allowed {
				passed++
			}
		}
		if passed != 1 {
			t.Errorf("%s from %s on: %d of 1 a day pass within 17 minutes", of.zone, of.at, passed)
		}
	}
}

// Lord Howe moves its clocks by half an hour. The hour after the change was computed to begin half
// an hour before the change, so a reservation of the hour before was given back into it.
func TestHourWindowOfLordHoweGivesBackTheHourBefore(t *testing.T) {
	zone, err := time.LoadLocation("Australia/Lord_Howe")
	if err != nil {
		t.Fatal(err)
	}
	x := time.Date(2026, 10, 3, 15, 30, 0, 0, time.UTC) // 02:00 → 02:30
	table := newTable(t, limit.Rule{Algorithm: limit.FixedWindow, Amount: 10, Align: limit.Hour,
		Zone: zone}, nil, 10)
	a, _ := table.Reserve(Time(x.Add(-15*time.Minute).UnixNano()), 1, "k", 10, time.Hour)
	now := Time(x.Add(5 * time.Minute).UnixNano())
	passed := take2(table, now, 20)
	table.Settle(now, 1, a.ID, 0)
	if passed += take2(table, now, 20); passed != 10 {
		t.Errorf("%d of 10 an hour pass after the change", passed)
	}
}

// In zones whose clocks change at odd times and by odd amounts, each moment lies in its window, and
// windows follow each other without gap or overlap.
func TestWindowsOfOddZones(t *testing.T) {
	for _, name := range []string{"America/Havana", "America/Santiago", "Atlantic/Azores",
		"Australia/Lord_Howe", "Asia/Kathmandu", "Europe/Dublin", "Pacific/Apia", "Africa/Casablanca"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := time.Date(2026, 1, 1, 0, 0, 0, 0, zone); at.Year() < 2031; {
			_, next := at.ZoneBounds()
			if next.IsZero() {
				break
			}
			for align := limit.Minute; align <= limit.Year; align++ {
				l := &fixedLaw{align: align, zone: zone}
				for m := -180; m <= 180; m += 5 {
					x := Time(next.Add(time.Duration(m) * time.Minute).UnixNano())
					from, to := l.around(x)
					before, end := l.around(from - 1)
					if x < from || x >= to || before >= from || end != from {
						t.Fatalf("%v in %s at %v: from %v to %v, the one before from %v to %v", align, name, x, from, to,
							before, end)
					}
				}
			}
			at = next
		}
	}
}
