//go:build kills || soak

package kills

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/yardstick"
)

// release releases a ticket by the API, and reports whether that was acknowledged.
func (p *process) release(token, ticket string) bool {
	req, err := http.NewRequest(http.MethodPost, "http://"+p.admin+"/v1/rooms/shop/tickets/"+ticket+"/release", nil)
	if err != nil {
		p.t.Error(err)
		return false
	}
	req.Header.Set("Authorization", "Bearer "+token)
	by := &http.Transport{DisableKeepAlives: true} // a request is not sent again
	resp, err := by.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		p.t.Errorf("the release of %s: %s %s", ticket, resp.Status, b)
	}
	return resp.StatusCode == http.StatusOK
}

// releaser returns a token that may release tickets.
func (p *process) releaser() string {
	p.t.Helper()
	out, err := exec.CommandContext(p.t.Context(), p.bin, "token", "create", "--scope", "release:shop", "--data",
		p.data()).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// releaseAll releases the tickets that are not released yet. told says which were acknowledged.
func (p *process) releaseAll(token string, ids []string, told []bool) {
	p.t.Helper()
	for i, id := range ids {
		var x status.Ticket
		resp, err := http.Get("http://" + p.admin + "/v1/rooms/shop/tickets/" + id)
		if err != nil {
			p.t.Fatal(err)
		}
		err = json.NewDecoder(resp.Body).Decode(&x)
		resp.Body.Close()
		if err != nil || told[i] && !x.Released || !x.Released && !p.release(token, id) {
			p.t.Errorf("ticket %s, acknowledged: %v: %+v, %v", id, told[i], x, err)
		}
	}
}

// tries checks that passes let in, and that copies of the tickets of before do not.
func (q *queue) tries(passes, copies []string) {
	q.t.Helper()
	for _, pass := range passes { // until then a ticket has the same session again
		if a := q.get("/", pass, false); a.state != "" {
			q.t.Errorf("a pass is worth %+v", a)
		}
	}
	yardstick.Await(q.t, "copies are worth nothing", func() bool {
		return !slices.ContainsFunc(copies, func(c string) bool {
			return q.get("/", c, true).state == stateCalled
		})
	})
	for _, cookie := range copies {
		if a := q.get("/", cookie, false); a.state == "" {
			q.t.Errorf("a copy of a used ticket lets in: %+v", a)
		}
	}
}

// TestAReleasedTicketOutlivesKills: a release that was acknowledged holds after kill -9, its visitor comes in
// where its first ticket stood, and a copy of its cookie lets nobody in.
func TestAReleasedTicketOutlivesKills(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer origin.Close()
	p := newProcess(t)
	s := &laneStage{p: p, file: filepath.Join(p.dir, "headgate.yaml"),
		q: &queue{t: t, url: "http://" + p.public}}
	p.args = []string{"run", "--config", s.file}
	const early, slow, late = 10, 6, 10
	write := func(held bool) {
		text := fmt.Sprintf("listen: %s\nadmin_listen: %s\ndata: %s\nrooms:\n  - name: shop\n    origin: %s\n"+
			"    total_active_users: %d\n    new_users_per_minute: 600\n    queue_all: %v\n    challenge: {kind: work}\n"+
			"    rules: [{action: challenge, expression: 'http.request.uri.path eq \"/slow\"'}]\n",
			p.public, p.admin, p.data(), origin.URL, early+slow+late, held)
		if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(true)
	p.start()
	token := p.releaser()
	tickets := make([]string, early+slow+late) // cookies
	for i := range tickets {
		path := "/"
		if i >= early && i < early+slow {
			path = "/slow"
		}
		a := s.q.get(path, "", false)
		if a.cookie == nil {
			t.Fatalf("%s: %+v", path, a)
		}
		tickets[i] = *a.cookie
	}
	var in []int // in order
	inside := make([]bool, len(tickets))
	ids, lanes := make([]string, len(tickets)), make([]int, len(tickets))
	due := make([]time.Time, len(tickets))
	ask := func() {
		for i, cookie := range tickets {
			if inside[i] || time.Now().Before(due[i]) {
				continue
			}
			a := s.q.get("/slow", cookie, true)
			if a.state == stateCalled {
				if a = s.q.get("/", cookie, false); a.state == "" {
					inside[i], in, tickets[i] = true, append(in, i), *a.cookie
					continue
				}
			}
			if a.cookie != nil {
				tickets[i] = *a.cookie
			}
			ids[i], lanes[i], due[i] = a.ticket, slot.LaneIndex(a.number), time.Now().Add(a.after)
		}
	}
	yardstick.Await(t, "the slow ones are in the lane", func() bool {
		ask()
		return !slices.Contains(lanes[early:early+slow], 0)
	})
	copies := slices.Clone(tickets[early : early+slow])
	kill := func(held bool) {
		p.kill()
		write(held)
		p.start()
		clear(due)
	}
	var wg sync.WaitGroup
	told, answered := make([]bool, slow), make(chan bool, slow)
	for i, id := range ids[early : early+slow] {
		wg.Go(func() {
			told[i] = p.release(token, id)
			answered <- true
		})
	}
	<-answered
	kill(true)
	wg.Wait()
	if !slices.Contains(told, true) {
		t.Error("no release was acknowledged")
	}
	p.releaseAll(token, ids[early:early+slow], told)
	ask()
	kill(false)
	for _, most := range []int{early + 2, len(tickets)} { // killed while they come in
		yardstick.Await(t, "they are in", func() bool { ask(); return len(in) >= most })
		kill(false)
	}
	for n, i := range in {
		for _, j := range in[:max(0, n-3)] { // those who were called before a kill may come a moment later
			if i < early && j >= early || i < early+slow && j >= early+slow {
				t.Errorf("visitor %d came in before %d: %v", j, i, in)
			}
		}
	}
	s.q.tries(tickets, copies)
	if got := served.Load(); got != 2*int64(len(tickets)) {
		t.Errorf("the origin was asked %d times by %d visitors", got, len(tickets))
	}
}
