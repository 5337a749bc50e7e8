//go:build kills || soak

package kills

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/tests/yardstick"
)

// newMembers makes headgate with a room that knows people by a header and calls nobody.
func newMembers(t *testing.T) *process {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("somebody is inside")
	}))
	t.Cleanup(origin.Close)
	p := newProcess(t)
	file := filepath.Join(p.dir, "headgate.yaml")
	text := fmt.Sprintf("listen: %s\nadmin_listen: %s\ndata: %s\ntrusted_proxies: [127.0.0.0/8]\nrooms:\n"+
		"  - name: shop\n    origin: %s\n    total_active_users: 10\n    new_users_per_minute: 600\n"+
		"    queue_all: true\n    identity: {header: x-member, required: true, sign_in: /login}\n",
		p.public, p.admin, p.data(), origin.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.args = []string{"run", "--config", file}
	return p
}

// join sends the request of a person with a new device, and returns the number of its ticket. It is 0
// without an answer, or if the answer names no ticket.
func (p *process) join(by http.RoundTripper, person, path string) uint64 {
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.public+path, http.NoBody)
	if err != nil {
		p.t.Error(err)
		return 0
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("X-Member", person)
	a, err := roundTrip(by, r)
	if err != nil { // the process was killed
		return 0
	}
	return a.number
}

// finds asks until a person is told its ticket: a process that has just started knows nobody yet.
func (p *process) finds(person string) (number uint64) {
	yardstick.Await(p.t, person+" is told a ticket", func() bool {
		number = p.join(http.DefaultTransport, person, "/")
		return number != 0
	})
	return number
}

// TestAPersonHasOnePlaceAfterKills: the process is killed while people join, as soon as a few have their
// answer. Everybody who was told a ticket finds the same one with another device, and no two people
// have the same one.
func TestAPersonHasOnePlaceAfterKills(t *testing.T) {
	t.Parallel()
	const kills, each = 6, 40
	p := newMembers(t)
	told, late := map[string]uint64{}, 0
	for round := range kills {
		p.start()
		if round == 0 {
			p.finds("the first") // so that the log is there
		}
		for person, was := range told {
			if got := p.finds(person); got != was {
				t.Errorf("kill %d: %s has the ticket %d, and was told %d", round, person, got, was)
			}
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		answered := make(chan bool, each)
		for i := range each {
			wg.Go(func() {
				person := fmt.Sprintf("person %d of %d", i, round)
				by := &http.Transport{DisableKeepAlives: true} // a request is not sent again
				if n := p.join(by, person, "/"); n != 0 {
					mu.Lock()
					told[person] = n
					mu.Unlock()
				}
				answered <- true
			})
		}
		for range each / 4 {
			<-answered
		}
		p.kill()
		wg.Wait()
		for i := range each {
			if told[fmt.Sprintf("person %d of %d", i, round)] == 0 {
				late++
			}
		}
	}
	p.start()
	people := map[uint64]string{}
	for round := range kills {
		for i := range each { // also those whose answer was lost
			person := fmt.Sprintf("person %d of %d", i, round)
			got := p.finds(person)
			if was := told[person]; was != 0 && got != was || people[got] != "" || got == 0 {
				t.Errorf("%s has the ticket %d of %q, and was told %d", person, got, people[got], was)
			}
			people[got] = person
		}
	}
	if len(told) < kills {
		t.Errorf("only %d of %d people were answered before a kill", len(told), kills*each)
	}
	t.Logf("%d people were told their ticket, %d joined as the process died", len(told), late)
}

// TestAPersonIsSyncedBeforeTold reads off the system calls that the ticket of a person is in the log, and
// the log on disk, before the answer leaves.
func TestAPersonIsSyncedBeforeTold(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v: install strace", err)
	}
	const joins = 12
	p := newMembers(t)
	trace := filepath.Join(p.dir, "trace")
	p.startTraced(trace)
	p.finds("the first")
	for i := range joins {
		if p.join(http.DefaultTransport, fmt.Sprint("person ", i), fmt.Sprintf("/join-%d-", i)) == 0 {
			t.Fatalf("person %d is told no ticket", i)
		}
	}
	p.stopTraced()
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := readTrace(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range joins {
		if err := proveJoin(calls, fmt.Sprintf("/join-%d-", i), p.data()+"/engine/", "headgate.log.shop_persons"); err != nil {
			t.Error(err)
		}
	}
}
