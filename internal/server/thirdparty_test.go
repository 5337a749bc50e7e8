package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// thirdParty is a room whose newcomers have a challenge of a third party, which url stands for.
func thirdParty(origin, url string) string {
	return "rooms:\n  - {name: shop, origin: " + origin + ", total_active_users: 9, new_users_per_minute: 9, " +
		"queue_all: true, challenge: {kind: turnstile, sitekey: a-key, secret_file: secret, verify_url: " + url + "}}\n"
}

// The page of a room with a third party allows its hosts, and the script shows its widget. Tokens are
// checked with the secret of the file, also with a new one after a reload, and no log has it.
func TestAThirdPartyOfTheFile(t *testing.T) {
	origin := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(origin.Close)
	var mu sync.Mutex // an answer can be late, when nobody waits for it any more
	var secrets []string
	asked := func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(secrets) }
	party := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		secrets = append(secrets, r.PostFormValue("secret"))
		mu.Unlock()
		fmt.Fprintf(w, `{"success":%t,"hostname":"127.0.0.1","error-codes":["invalid-input-secret"]}`,
			r.PostFormValue("response") != "away")
	}))
	t.Cleanup(party.Close)
	p := &process{t: t, dir: t.TempDir()}
	p.file = filepath.Join(p.dir, "headgate.yaml")
	p.save("secret", " s-1\n")
	p.write(thirdParty(origin.URL, party.URL))
	p.start()
	defer func() { p.stop() }()
	if r := get(t, p.visitors+"/.headgate/work.js", ""); !strings.Contains(r.body, "headgateWidget") {
		t.Error(r.Status, r.body)
	}
	policy := get(t, p.visitors+"/", "").Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "frame-src https://challenges.cloudflare.com;") {
		t.Error(policy)
	}
	for _, secret := range []string{"s-1", "s-2"} {
		p.save("secret", secret)
		p.reload()
		for solved := false; !solved; { // a machine that stands still for 10 s lets tickets lapse
			joined := asApp(t, p.visitors, "", "")
			if !strings.Contains(joined.body, `"challenge":{"kind":"turnstile","sitekey":"a-key","action":"headgate-`) {
				t.Fatal(joined.body)
			}
			r := asApp(t, p.visitors, joined.cookie, rand.Text())
			solved = strings.Contains(r.body, `"challenge":null`)
		}
		if all := asked(); all[len(all)-1] != secret {
			t.Error(all)
		}
	}
	for before := len(asked()); len(asked()) == before; {
		r := asApp(t, p.visitors, asApp(t, p.visitors, "", "").cookie, "away")
		if strings.Contains(r.body, `"challenge":null`) {
			t.Error(r.body)
		}
	}
	if p.metric(`headgate_challenges_refused_total{reason="unavailable",room="shop"}`) < 1 {
		t.Error("no metric of a token that could not be checked")
	}
}

// asApp polls as an app does, with a cookie and a token, or without.
func asApp(t *testing.T, url, cookie, token string) (got struct{ body, cookie string }) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Accept": {"application/json"}, "Cookie": {cookie}, "Headgate-Solution": {token}}
	answer := fetch(t, http.DefaultClient.Do, r)
	got.body, got.cookie = answer.body, cookie
	for _, c := range answer.Cookies() {
		got.cookie = c.Name + "=" + c.Value
	}
	return got
}

// A secret that others may read, or that is none, is a fault before headgate starts.
func TestCheckFilesOfSecrets(t *testing.T) {
	p := &process{t: t, dir: t.TempDir()}
	p.file = filepath.Join(p.dir, "headgate.yaml")
	p.write(thirdParty("http://127.0.0.1:1", "http://127.0.0.1:1"))
	cfg, err := config.Load(p.file)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(p.dir, "secret")
	for _, x := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{"", 0, "there is no such file"},
		{"", 0o600, "holds no secret"},
		{" \n", 0o600, "holds no secret"},
		{"two words", 0o600, "holds no secret"},
		{"0x4AAA", 0o644, "may be read by others"},
		{"0x4AAA\n", 0o600, ""},
	} {
		if x.mode > 0 {
			err := errors.Join(os.WriteFile(secret, []byte(x.text), x.mode), os.Chmod(secret, x.mode))
			if err != nil {
				t.Fatal(err)
			}
		}
		err := CheckFiles(cfg)
		if (err == nil) != (x.want == "") || err != nil && (!strings.Contains(err.Error(), x.want) ||
			!strings.Contains(err.Error(), "secret_file") || strings.Contains(err.Error(), "two words")) {
			t.Errorf("%q, mode %o: %v, want %q", x.text, x.mode, err, x.want)
		}
	}
}
