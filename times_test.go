package headgate

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/histogram"
)

// only returns the single duration that a histogram holds.
func only(t *testing.T, what string, h *histogram.Histogram) time.Duration {
	t.Helper()
	at, n := 0, int64(0)
	for b, m := range h.Read() {
		if n += m; m > 0 {
			at = b
		}
	}
	if n != 1 {
		t.Fatalf("%s: %d counted, want 1", what, n)
	}
	return histogram.Value(at)
}

// about compares a duration, known to an eighth, with the expected one, with a tolerance for polls.
func about(t *testing.T, what string, got, want, slack time.Duration) {
	t.Helper()
	if (got - want).Abs() > want/8+slack {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestTimesAreCounted(t *testing.T) {
	bubble(t, "of who waited, and of stays that are over", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
			Hold: 3 * time.Minute, HoldPhone: 3 * time.Minute})
		a, b := g.visitor(), g.visitor()
		if !a.in() || b.in() {
			t.Fatal("the room is not empty, or not full")
		}
		time.Sleep(10 * time.Second)
		a.in()
		time.Sleep(30 * time.Second)
		a.in()
		began := time.Now()
		if !b.until(3*time.Minute) || !b.in() {
			t.Fatal("not called")
		}
		waited := 40*time.Second + time.Since(began)
		about(t, "waited", only(t, "waited", g.room.Durations().Waited), waited, time.Second)
		for range 40 { // somebody must be inside for the room to look
			time.Sleep(5 * time.Second)
			b.in()
		}
		times := g.room.Durations()
		about(t, "inside", only(t, "inside", times.Inside), 40*time.Second, 0)
		about(t, "silent", only(t, "silent", times.Silent), 30*time.Second, 0)
	})
	bubble(t, "who comes back too late", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
			Hold: 3 * time.Minute, HoldPhone: 3 * time.Minute})
		a, b := g.visitor(), g.visitor()
		if !a.in() || b.in() {
			t.Fatal("the room is not empty, or not full")
		}
		for range 40 { // b is silent until its place is gone
			time.Sleep(6 * time.Second)
			a.in()
		}
		if n := g.room.Status().Totals; n.Expired != 1 || n.PlacesBack != 0 {
			t.Errorf("%d places expired, want 1", n.Expired)
		}
		b.in()
		if n := g.room.Status().Totals; n.PlacesBack != 1 || n.Joined != 2 {
			t.Errorf("%d came back, want 1", n.PlacesBack)
		}
		b.do("POST", "/.headgate/leave")
		time.Sleep(80 * time.Second) // past a's end, by less than a session
		a.in()
		if n := g.room.Status().Totals; n.PassesBack != 1 || n.PlacesBack != 1 {
			t.Errorf("%d passes back, want 1", n.PassesBack)
		}
		time.Sleep(10 * time.Minute)
		a.in()
		if n := g.room.Status().Totals; n.PassesBack != 1 {
			t.Error("who comes the next day has not come back")
		}
		if n := g.room.Status(); !n.Hosted {
			t.Error("a room that is alone is hosted elsewhere")
		}
	})
}
