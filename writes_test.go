package headgate

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// However many visitors wait, a room at 500 new users a minute writes its record at most twenty
// times a second.
func TestARoomAt500AMinuteWritesAtMostTwentyTimesASecond(t *testing.T) {
	for name, waiting := range map[string]int{"a few": 700, "many": 3000} {
		bubble(t, name, func(t *testing.T) {
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 500, NewUsersPerMinute: 500, SessionDuration: 30 * time.Second,
			})
			if testing.Short() && waiting > 1000 {
				return // the same in make all
			}
			g.h = g.room.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "origin")
			}))
			var crowd sync.WaitGroup
			t.Cleanup(crowd.Wait)
			over := time.Now().Add(3*time.Minute + time.Second)
			for range waiting {
				crowd.Go(func() { // a visitor who comes again and again
					for time.Now().Before(over) {
						v := g.visitor()
						v.in()
						v.until(time.Until(over))
						for range 6 { // stays half a minute, then leaves
							v.in()
							time.Sleep(5 * time.Second)
						}
					}
				})
			}
			time.Sleep(2 * time.Minute)
			before := g.room.Status()
			time.Sleep(time.Minute)
			after := g.room.Status()
			writes := float64(after.Totals.Writes-before.Totals.Writes) / 60
			entered := after.Totals.Admitted - before.Totals.Admitted
			t.Logf("%.1f writes a second, %d let in, %d wait", writes, entered, after.WaitingUsers)
			if writes > 20 || entered < 480 || entered > 510 {
				t.Errorf("%.1f writes a second while %d were let in in a minute", writes, entered)
			}
		})
	}
}
