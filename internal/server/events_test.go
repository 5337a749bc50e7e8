package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAnEventOfTheFile takes place by the clock: its prequeue holds who is new, its method is in
// force from its start, and at its end the room is as before.
func TestAnEventOfTheFile(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("origin"))
	}))
	t.Cleanup(origin.Close)
	p := &process{t: t, dir: t.TempDir()}
	p.save("headgate.yaml", "")
	p.save("sale.html", "<p>sale {{state}}")
	p.file = p.dir + "/headgate.yaml"
	room := "rooms:\n  - name: shop\n    origin: " + origin.URL + "\n" +
		"    total_active_users: 100\n    new_users_per_minute: 100\n"
	p.write(room)
	p.start()
	t.Cleanup(func() { p.stop() })
	const step = 4 * time.Second // a reload, writes and requests are done in each
	now := time.Now()
	at := func(n time.Duration) string { return now.Add(n * step).Format(time.RFC3339Nano) }
	p.write(room + fmt.Sprintf("    events:\n    - {name: sale, prequeue_start: %q, start: %q, end: %q,\n"+
		"       shuffle: true, method: reject, html_file: sale.html}\n", at(1), at(2), at(3)))
	p.reload()
	if s := p.status("shop"); s.Draw == nil || len(s.Draw.Hash) != 64 || s.Event != nil {
		t.Errorf("before: %+v %+v", s.Event, s.Draw)
	}
	if r := get(t, p.visitors+"/", ""); r.StatusCode != 200 {
		t.Errorf("before: %d", r.StatusCode)
	}
	eventually(t, "the prequeue", func() bool { return p.status("shop").Status == "event_prequeueing" })
	if r := get(t, p.visitors+"/", ""); r.StatusCode != 503 || r.Header.Get("Headgate-State") != "opens_at" {
		t.Errorf("prequeue: %d %v", r.StatusCode, r.Header)
	}
	eventually(t, "the page of the prequeue", func() bool {
		return get(t, p.visitors+"/", "").body == "<p>sale opens_at"
	})
	eventually(t, "the start", func() bool {
		return p.status("shop").Method == "reject" &&
			p.status("shop").Draw.Finished
	})
	if r := get(t, p.visitors+"/", ""); r.Header.Get("Headgate-State") != "closed" ||
		r.body != "<p>sale closed" {
		t.Errorf("event: %d %v %s", r.StatusCode, r.Header, r.body)
	}
	eventually(t, "the end", func() bool {
		s := p.status("shop")
		return s.Event == nil && s.Method == "fifo"
	})
	p.change("shop", map[string]string{"method": "reject"})
	if r := get(t, p.visitors+"/", ""); r.Header.Get("Headgate-State") != "closed" ||
		strings.Contains(r.body, "sale") {
		t.Errorf("a live change of the method: %d %v", r.StatusCode, r.Header)
	}
	p.change("shop", map[string]string{"method": "passthrough"})
	if r := get(t, p.visitors+"/", ""); r.StatusCode != 200 || p.status("shop").Method != "passthrough" {
		t.Errorf("after: %d %q", r.StatusCode, r.body)
	}
}
