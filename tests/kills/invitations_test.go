//go:build kills || soak

package kills

import (
	"encoding/base64"
	"encoding/csv"
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
	"testing"

	"github.com/headgate/headgate/internal/checkout"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/tests/yardstick"
)

// sessionName is an origin that answers with the name of the session, as the signed pass says it.
func sessionName(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.Header.Get(checkout.PassHeader), ".")
	var claims struct{ Sub string }
	if len(parts) == 3 {
		b, _ := base64.RawURLEncoding.DecodeString(parts[1])
		_ = json.Unmarshal(b, &claims)
	}
	io.WriteString(w, claims.Sub)
}

// newInvited makes headgate with a room for invitations, and as many of them, with as many uses each.
func newInvited(t *testing.T, count, uses int) (p *process, codes []string) {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(sessionName))
	t.Cleanup(origin.Close)
	p = newProcess(t)
	file := filepath.Join(p.dir, "headgate.yaml")
	text := fmt.Sprintf("listen: %s\nadmin_listen: %s\ndata: %s\nrooms:\n"+
		"  - name: shop\n    origin: %s\n    total_active_users: 10000\n    new_users_per_minute: 600000\n"+
		"    session_duration: 2s\n    session_renewal: false\n    checkout: {pass: true}\n"+
		"    identity: {codes: {secret_file: codes.key}, required: true, sign_in: \"/invited?why={reason}\"}\n",
		p.public, p.admin, p.data(), origin.URL)
	for name, text := range map[string]string{file: text, filepath.Join(p.dir, "codes.key"): strings.Repeat("5ecret", 6)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.args = []string{"run", "--config", file}
	out, err := exec.CommandContext(t.Context(), p.bin, "codes", "make", "shop", "--config", file, "--batch", "1",
		"--count", fmt.Sprint(count), "--uses", fmt.Sprint(uses), "--until", "2080-01-01T00:00:00Z").Output()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) != count+1 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for _, row := range rows[1:] {
		codes = append(codes, row[0])
	}
	return p, codes
}

// invited opens the link of an invitation with a new device, and returns the session that lets it in, or
// where it is sent. Both are empty if it waits, or if there is no answer.
func (p *process) invited(by http.RoundTripper, code string) (session, to string) {
	_, session, to = p.opens(by, code, "")
	return session, to
}

// opens is invited with a device that may have the cookie of the code, which it returns.
func (p *process) opens(by http.RoundTripper, code, was string) (cookie, session, to string) {
	cookie = was
	for _, query := range []string{"?" + invite.Field + "=" + code, ""} {
		if query != "" && was != "" {
			continue
		}
		r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.public+"/"+query, http.NoBody)
		if err != nil {
			p.t.Error(err)
			return cookie, "", ""
		}
		r.Header.Set("Accept", "text/html")
		if cookie != "" {
			r.Header.Set("Cookie", cookie)
		}
		res, err := by.RoundTrip(r)
		if err != nil { // the process was killed
			return cookie, "", ""
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		switch {
		case err != nil:
			return cookie, "", ""
		case query != "":
			for _, c := range res.Cookies() {
				cookie = c.Name + "=" + c.Value
			}
		case res.StatusCode == http.StatusOK:
			return cookie, string(b), ""
		default:
			return cookie, "", res.Header.Get("Location")
		}
	}
	return cookie, "", ""
}

// TestAnInvitationLetsInOnceAfterKills: the process is killed while people come in, as soon as a few are
// inside. Nobody comes in by an invitation after the session that began with it, and each one that let nobody
// in still does.
func TestAnInvitationLetsInOnceAfterKills(t *testing.T) {
	t.Parallel()
	const kills, each = 5, 30
	p, codes := newInvited(t, kills*each, 1)
	var mu sync.Mutex
	sessions := map[string][]string{}
	note := func(code, session string) {
		mu.Lock()
		defer mu.Unlock()
		if session != "" && !slices.Contains(sessions[code], session) {
			sessions[code] = append(sessions[code], session)
		}
	}
	for now := range slices.Chunk(codes, each) {
		p.start()
		answered, inside := make(chan bool, each), 0
		var wg sync.WaitGroup
		for _, code := range now {
			wg.Go(func() {
				by := &http.Transport{DisableKeepAlives: true} // a request is not sent again
				session, _ := p.invited(by, code)
				note(code, session)
				answered <- session != ""
			})
		}
		for n := 0; n < each && inside < each/3; n++ {
			if <-answered {
				inside++
			}
		}
		p.kill()
		wg.Wait()
		p.start()
		left := slices.Clone(now)
		yardstick.Await(t, "all are used", func() bool {
			left = slices.DeleteFunc(left, func(code string) bool {
				session, to := p.invited(http.DefaultTransport, code)
				note(code, session)
				return to == "/invited?why=used"
			})
			return len(left) == 0
		})
		p.kill()
	}
	p.start()
	for _, code := range codes {
		session, to := p.invited(http.DefaultTransport, code)
		if note(code, session); session != "" || to != "/invited?why=used" && to != "" {
			t.Errorf("%s: %q %q", code, session, to)
		}
		if n := len(sessions[code]); n != 1 {
			t.Errorf("%s let in %d sessions %v", code, n, sessions[code])
		}
	}
}

// TestUsesAreExactAfterKills: the process is killed while five visitors each come in by codes of three uses.
// Three of them come in by each code, each in one session, however often they try again.
func TestUsesAreExactAfterKills(t *testing.T) {
	t.Parallel()
	const kills, each, visitors, uses = 4, 8, 5, 3
	p, codes := newInvited(t, kills*each, uses)
	var mu sync.Mutex
	cookies, sessions := map[string]string{}, map[string][]string{} // by code and visitor
	come := func(by http.RoundTripper, code string, visitor int) (inside, over bool) {
		name := fmt.Sprint(code, "/", visitor)
		mu.Lock()
		was := cookies[name]
		mu.Unlock()
		cookie, session, to := p.opens(by, code, was)
		mu.Lock()
		defer mu.Unlock()
		if cookies[name] = cookie; session != "" && !slices.Contains(sessions[name], session) {
			sessions[name] = append(sessions[name], session)
		}
		return session != "", to == "/invited?why=used"
	}
	for now := range slices.Chunk(codes, each) {
		p.start()
		answered, inside := make(chan bool, each*visitors), 0
		var wg sync.WaitGroup
		for i := range each * visitors {
			wg.Go(func() {
				by := &http.Transport{DisableKeepAlives: true} // a request is not sent again
				in, _ := come(by, now[i%each], i/each)
				answered <- in
			})
		}
		for n := 0; n < each*visitors && inside < each; n++ {
			if <-answered {
				inside++
			}
		}
		p.kill()
		wg.Wait()
		p.start()
		left := make([]int, each*visitors)
		for i := range left {
			left[i] = i
		}
		yardstick.Await(t, "all uses are taken", func() bool {
			left = slices.DeleteFunc(left, func(i int) bool {
				_, over := come(http.DefaultTransport, now[i%each], i/each)
				return over
			})
			return len(left) == 0
		})
		p.kill()
	}
	for _, code := range codes {
		all := 0
		for visitor := range visitors {
			n := len(sessions[fmt.Sprint(code, "/", visitor)])
			if all += min(n, 1); n > 1 {
				t.Errorf("visitor %d of %s was in %d sessions", visitor, code, n)
			}
		}
		if all != uses {
			t.Errorf("%s let in %d of its %d", code, all, uses)
		}
	}
}
