package headgate

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// A proxy needs time to forward a request that may pass. So the place of a new user in the minute is
// free again a minute and a second after the decision, and the origin sees no minute with more.
func TestTheMinuteOfADecisionBeginsASecondLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 2,
			SessionDuration: time.Minute})
		defer g.stop()
		decide := g.room.Decide(true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}))
		var jar crowd.Jar
		ask := func() bool {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Accept", "text/html")
			r.Header.Set("Cookie", jar.String())
			decide.ServeHTTP(w, r)
			jar.Keep(w.Header()["Set-Cookie"])
			return w.Code == http.StatusNoContent
		}
		for range 2 {
			if jar = (crowd.Jar{}); !ask() {
				t.Fatal("a newcomer waits in an empty room")
			}
		}
		began := time.Now()
		for jar = (crowd.Jar{}); !ask(); time.Sleep(250 * time.Millisecond) {
			if time.Since(began) > 5*time.Minute {
				t.Fatal("the third never came in")
			}
		}
		if got := time.Since(began); got < time.Minute+forwarding {
			t.Errorf("the third came in after %v", got)
		} else {
			t.Logf("after %v", got)
		}
	})
}
