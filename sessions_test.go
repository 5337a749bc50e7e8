package headgate

import (
	"testing"
	"time"
)

// A request that is not reported yet when sessions become fixed, or shorter, is reported by the
// earlier rules, because passes already contain the result.
func TestWhatWasSeenBeforeAChangeOfSessionsIsReported(t *testing.T) {
	pay := Grace{Paths: []string{"/pay/*"}, For: 30 * time.Second} // the longest is the same
	for name, change := range map[string]func(*RoomConfig){
		"fixed":   func(c *RoomConfig) { c.FixedSession = true },
		"shorter": func(c *RoomConfig) { c.SessionDuration = 8 * time.Second },
	} {
		bubble(t, name, func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, Grace: pay,
				SessionDuration: 20 * time.Second})
			a, b := g.visitor(), g.visitor()
			if !a.in() {
				t.Fatal("the room is empty")
			}
			b.in()
			time.Sleep(18*time.Second + 300*time.Millisecond) // between two reports
			a.in()
			cfg := g.room.Config()
			change(&cfg)
			if err := g.room.Reconfigure(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			if !b.until(40*time.Second) || !b.in() {
				t.Fatal("the second is not let in")
			}
			for range 6 { // what a pass says counts once the record surely has all of that time
				if friend := *a; friend.in() {
					t.Fatalf("two are inside of one: %+v", g.room.Status())
				}
				time.Sleep(time.Second)
			}
		})
	}
}
