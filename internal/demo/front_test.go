package demo

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/hint"
)

// A waiting answer as the room gives it, but for the keys that nobody here reads.
const waitingAnswer = `{"cfWaitingRoom":{},"headgate":{"state":%q,"position":%d,` +
	`"eta_seconds":%s,"ticket":"abc%d"}}`

// roomAt is a node whose visitors are served by another server.
func roomAt(s *httptest.Server) *node {
	n := newNode("n1", "n1", "", "", nil)
	n.visitors = strings.TrimPrefix(s.URL, "http://")
	return n
}

// openTestFront has a front before a room that answers as room says.
func openTestFront(t *testing.T, room http.HandlerFunc) (*front, *httptest.Server) {
	t.Helper()
	inner := httptest.NewServer(room)
	t.Cleanup(inner.Close)
	f, err := openFront("127.0.0.1:0", false, roomAt(inner))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	return f, inner
}

func TestFrontReadsAlong(t *testing.T) {
	position, state := 7, "waiting"
	var text, host, visitor, from string
	f, _ := openTestFront(t, func(w http.ResponseWriter, r *http.Request) {
		host, visitor = r.Host, r.Header.Get(crowd.VisitorHeader)
		from = r.Header.Get("X-Forwarded-For")
		text = fmt.Sprintf(waitingAnswer, state, position, "12", 1) + strings.Repeat(" ", 2*maxAnswer)
		w.Header().Set("Headgate-State", state)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(503)
		fmt.Fprint(w, text)
	})
	resp, body := get(t, "GET", f.URL, crowd.VisitorHeader, "3")
	if resp.StatusCode != 503 || body != text {
		t.Errorf("status %d and %d bytes, want 503 and all %d", resp.StatusCode, len(body), len(text))
	}
	if want := strings.Trim(strings.TrimPrefix(f.URL, "http://"), "/"); host != want {
		t.Errorf("the room sees host %q, want %q", host, want)
	}
	if visitor != "" || from != "127.0.0.1" {
		t.Errorf("the room sees visitor %q from %q", visitor, from)
	}
	got := f.inLine(time.Now())
	if len(got) != 1 || got[0].Position != 7 || got[0].Expected != 12*time.Second {
		t.Errorf("in line %+v, want one at 7, 12 s", got)
	}
	if late := f.inLine(time.Now().Add(time.Minute)); len(late) != 0 {
		t.Errorf("who closed the page is still in line: %+v", late)
	}
	get(t, "GET", f.URL)
	state, position = "called", 1
	get(t, "GET", f.URL)
	if got := f.inLine(time.Now()); len(got) != 0 {
		t.Errorf("who was called is still in line: %+v", got)
	}
}

// While the room is down a browser sees what it would see without the front: nothing.
func TestFrontHangsUpWithoutARoom(t *testing.T) {
	f, inner := openTestFront(t, func(http.ResponseWriter, *http.Request) {})
	inner.Close()
	if resp, err := http.Get(f.URL); err == nil {
		resp.Body.Close()
		t.Errorf("an answer with status %d, want none", resp.StatusCode)
	}
}

func TestFrontAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	if _, err := openFront(addr, false, http.DefaultTransport); err == nil {
		t.Error("listens on an address that is taken")
	} else if h, ok := err.(*hint.Error); !ok || !strings.Contains(h.Hint(), "--listen") {
		t.Errorf("%v has no hint", err)
	}
	f, err := openFront(addr, true, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if strings.Contains(f.URL, addr) {
		t.Errorf("it says %s, which is another's", f.URL)
	}
	for _, a := range []net.Addr{&net.TCPAddr{IP: net.IPv4zero, Port: 81},
		&net.TCPAddr{IP: net.IPv6unspecified, Port: 81}} {
		if got := dialable(a); got != "127.0.0.1:81" {
			t.Errorf("%v: a browser is told %s", a, got)
		}
	}
}
