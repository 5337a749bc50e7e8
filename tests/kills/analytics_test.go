//go:build kills || soak

package kills

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAnalyticsAfterAKill: what was counted before the last whole minute is there after kill -9 and
// after the file's end was torn; what is lost is of the minute that went on, and the next process
// goes on with it.
func TestAnalyticsAfterAKill(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	p := newProcess(t, "--origin", origin.URL, "--total-active-users", "1000",
		"--new-users-per-minute", "1000")
	p.start()
	if left := untilMinute(); left < 10*time.Second { // not across the end of one
		<-time.After(left + time.Second)
	}
	p.visits(t, 5)
	<-time.After(untilMinute() + 7*time.Second) // it looks each 5 s
	p.visits(t, 3)
	if n := p.admitted(t); n != 8 {
		t.Errorf("%v admitted before the kill, want 8", n)
	}
	p.kill()
	tear(t, filepath.Join(p.data(), "analytics"))
	p.start()
	if n := p.admitted(t); n != 5 {
		t.Errorf("%v admitted after the kill, want the 5 of the minute before", n)
	}
	<-time.After(5 * time.Second) // nobody new comes in just after a kill
	p.visits(t, 2)
	if n := p.admitted(t); n != 7 {
		t.Errorf("%v admitted in the end, want 7", n)
	}
}

func untilMinute() time.Duration {
	now := time.Now()
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now)
}

// tear adds half a frame to the newest log, as a kill in the middle of a write does.
func tear(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal("no log in ", dir, err)
	}
	f, err := os.OpenFile(logs[len(logs)-1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte{200, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7}); err != nil {
		t.Fatal(err)
	}
}

func (p *process) visits(t *testing.T, n int) {
	t.Helper()
	for range n {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.public+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
	}
}

func (p *process) admitted(t *testing.T) float64 {
	t.Helper()
	res, err := http.Get("http://" + p.admin + "/v1/analytics?room=main&from=-1h")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct{ Total map[string]any }
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	n, _ := got.Total["admitted"].(float64)
	return n
}
