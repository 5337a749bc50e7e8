package crowd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A fakeRoom speaks the wire contract over the simplest room there is: the
// first free visitors walk in, and ticket n is called n × every after opening.
// Its flaws can be switched on, for tests that must notice them.
type fakeRoom struct {
	free   uint64
	every  time.Duration
	served bool // offers the shared document
	plain  bool // the page is somebody's own and holds no answer

	callAt  func(n uint64) time.Duration // flaw: another order of calls
	lie     time.Duration                // flaw: the estimate is off by this
	lateArr bool                         // flaw: newcomers walk past the line
	gone    time.Duration                // from here on there is no room, only an origin

	mu      sync.Mutex
	opened  time.Time
	next    uint64
	visits  map[string]int // requests that reached the origin, by visitor
	revoked int
	asked   map[Ask]int
	stale   int // requests with a cookie that is not the newest
	newest  map[string]string
}

func newFakeRoom(free uint64, every time.Duration) *fakeRoom {
	return &fakeRoom{free: free, every: every, opened: time.Now(), visits: map[string]int{},
		asked: map[Ask]int{}, newest: map[string]string{}}
}

// RoundTrip answers in process, so that a bubble's clock rules.
func (f *fakeRoom) RoundTrip(req *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, req)
	return rec.Result(), nil
}

func (f *fakeRoom) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := r.Header.Get(VisitorHeader)
	if strings.HasSuffix(r.URL.Path, "/served") {
		f.asked[AskServed]++
		json.NewEncoder(w).Encode(map[string]any{"state": "waiting", "served": f.servedNow()})
		return
	}
	if f.gone > 0 && time.Since(f.opened) >= f.gone {
		f.visits[id]++
		fmt.Fprint(w, "<p>hello")
		return
	}
	value := ""
	if c, err := r.Cookie("ticket"); err == nil {
		value, _, _ = strings.Cut(c.Value, ".")
		if c.Value != f.newest[id] {
			f.stale++
		}
	}
	n, _ := strconv.ParseUint(value, 10, 64)
	if n == 0 && value != "pass" {
		f.next++
		n = f.next
	}
	ask := AskPage
	switch {
	case r.Header.Get("Headgate-Poll") == "1":
		ask = AskPoll
	case r.Header.Get("Accept") == "application/json":
		ask = AskJSON
	}
	f.asked[ask]++
	called := value == "pass" || n <= f.free || time.Since(f.opened) >= f.due(n)
	if called && ask != AskPoll || f.lateArr && n%10 == 0 {
		f.setCookie(w, id, "pass")
		f.origin(w, r, id)
		return
	}
	f.setCookie(w, id, strconv.FormatUint(n, 10))
	f.wait(w, ask, n, called)
}

func (f *fakeRoom) setCookie(w http.ResponseWriter, id, value string) {
	f.newest[id] = fmt.Sprintf("%s.%d", value, time.Now().UnixNano())
	http.SetCookie(w, &http.Cookie{Name: "ticket", Value: f.newest[id]})
}

func (f *fakeRoom) origin(w http.ResponseWriter, r *http.Request, id string) {
	f.visits[id]++
	if strings.HasSuffix(r.URL.Path, "/leave") {
		f.revoked++
		w.Header().Set("Headgate-Command", "revoke")
	}
	fmt.Fprint(w, "hello")
}

func (f *fakeRoom) due(n uint64) time.Duration {
	if f.callAt != nil {
		return f.callAt(n)
	}
	return time.Duration(n-f.free) * f.every
}

func (f *fakeRoom) servedNow() uint64 {
	return f.free + uint64(time.Since(f.opened)/f.every)
}

func (f *fakeRoom) wait(w http.ResponseWriter, ask Ask, n uint64, called bool) {
	left := max(0, f.due(n)-time.Since(f.opened))
	after := min(max(left/8, time.Second), 30*time.Second)
	state := "waiting"
	if called {
		state, after = "called", 0
	}
	w.Header().Set("Headgate-State", state)
	if ask == AskPage {
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "<p>please wait")
		if f.plain {
			return
		}
	}
	t := map[string]any{"state": state, "number": n, "served": f.servedNow(),
		"position": max(0, int64(n)-int64(f.servedNow())), "ahead": 0,
		"eta_low_seconds":    (left + f.lie).Seconds(),
		"eta_high_seconds":   (left + f.lie + 2*time.Second + left/8).Seconds(),
		"poll_after_seconds": after.Seconds()}
	if f.served {
		t["served_url"] = "/served"
	}
	if ask == AskPage {
		fmt.Fprint(w, `<script type="application/json" id="view">`)
		json.NewEncoder(w).Encode(t)
		fmt.Fprint(w, `</script>`)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"cfWaitingRoom": map[string]any{}, "headgate": t})
}
