package manage

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/config"
)

const widgets = `turnstile:
  visible_managed: {sitekey: 0x4AAA-managed, secret_file: /etc/managed.key, hostnames: [shop.example.com],
    fail_open: true, verify_url: "https://proxy.example.com/siteverify"}
`

// A room of the API has the challenge that its mode and its action mean, or a fault says why not. What
// clients write that know nothing of headgate's file, Cloudflare's default, is never one.
func TestModesOfTurnstile(t *testing.T) {
	const work = `"headgate":{"challenge":{"kind":"work"}}`
	managed := config.Challenge{Kind: "turnstile", PublicKey: "0x4AAA-managed", SecretFile: "/etc/managed.key",
		VerifyURL: "https://proxy.example.com/siteverify", Hostnames: []string{"shop.example.com"}, FailOpen: true,
		Action: "log"}
	endless := managed
	endless.Action = "infinite_queue"
	invisible := config.Challenge{Kind: "turnstile", PublicKey: "0x4AAA-invisible", SecretFile: "secret", Action: "log"}
	none, own := config.Challenge{Kind: "none", Action: "log"}, config.Challenge{Kind: "work", Action: "log"}
	const claim = `"headgate":{"challenge":{"kind":"work","on":"claim"}}`
	atClaim := func(c config.Challenge) config.Challenge { c.On = "claim"; return c }
	const more = "  invisible: {sitekey: 0x4AAA-invisible, secret_file: secret}\n"
	for _, x := range []struct {
		file, body string
		want       config.Challenge
		fault      string
	}{
		{"", `"a":0`, none, ""},
		{"", `"turnstile_mode":"invisible","turnstile_action":"log"`, none, ""},
		{"", `"turnstile_mode":"off","turnstile_action":"infinite_queue"`, none, ""},
		{"", work, own, ""},
		{"", `"turnstile_mode":"off",` + work, own, ""},
		{"", `"turnstile_action":"infinite_queue"`, none, "/turnstile_mode not_supported"},
		{"", `"turnstile_mode":"visible_managed"`, none, "/turnstile_mode not_supported"},
		{widgets, `"turnstile_mode":"visible_managed"`, managed, ""},
		{widgets, `"turnstile_mode":"visible_managed","turnstile_action":"infinite_queue"`, endless, ""},
		{widgets, `"turnstile_mode":"visible_non_interactive"`, none, "/turnstile_mode not_supported"},
		{widgets, `"turnstile_mode":"visible_managed",` + work, none, "/turnstile_mode conflicting"},
		{widgets, `"turnstile_action":"infinite_queue",` + work, none, "/turnstile_mode conflicting"},
		{widgets, `"turnstile_mode":"visible_managed","turnstile_action":"lane"`, none, "/turnstile_action invalid_value"},
		{widgets, `"a":0`, none, ""},
		{widgets + more, `"a":0`, invisible, ""},
		{widgets + more, work, own, ""},
		{"", claim, atClaim(own), ""},
		{widgets, `"turnstile_mode":"visible_managed","headgate":{"challenge":{"on":"claim"}}`, atClaim(managed), ""},
		{"", `"headgate":{"challenge":{"on":"claim"}}`, none, "/headgate/challenge/on invalid_value"},
		{"", `"headgate":{"challenge":{"kind":"work","on":"later"}}`, none, "/headgate/challenge/on invalid_value"},
	} {
		if x.want.On == "" {
			x.want.On = "join"
		}
		s := newShelf(t, x.file+oneRoom)
		body := strings.Replace(shop, "{", "{"+strings.TrimPrefix(x.body, `"a":0`)+",", 1)
		_, err := s.try(&Op{What: Rooms, Verb: Create, Body: []byte(strings.Replace(body, "{,", "{", 1))})
		f, _ := errors.AsType[Faults](err)
		switch w := s.open().Wanted(); {
		case x.fault != "" && (len(f) != 1 || f[0].Pointer+" "+f[0].Code != x.fault || f[0].Hint == ""):
			t.Errorf("%s: %v, want %s", x.body, err, x.fault)
		case x.fault == "" && (err != nil || len(w) != 1 || w[0].Problem != ""):
			t.Errorf("%s: %v, %+v", x.body, err, w)
		case x.fault == "" && cmp.Diff(x.want, w[0].Room.Challenge) != "":
			t.Errorf("%s: %s", x.body, cmp.Diff(x.want, w[0].Room.Challenge))
		}
	}
}

// A widget that is no longer in the file takes no room's challenge away in silence. An event changes none.
func TestAWidgetThatIsGone(t *testing.T) {
	s := newShelf(t, widgets+oneRoom)
	r := s.make(strings.Replace(shop, "{", `{"turnstile_mode":"visible_managed","turnstile_action":"infinite_queue",`, 1))
	s.do(&Op{What: RuleList, Verb: Create, Room: r.ID, Body: []byte(`{"action":"challenge","expression":"ssl"}`)})
	event := func(more string) error {
		_, err := s.try(&Op{What: Events, Verb: Create, Room: r.ID, Body: []byte(`{"name":"a` +
			strings.Map(nameLetter, more) + `","event_start_time":"2027-01-01T00:00:00Z","event_end_time":"2027-01-01T01:00:00Z"` +
			more + `}`)})
		return err
	}
	for more, want := range map[string]string{
		"":                                    "",
		`,"turnstile_mode":"visible_managed"`: "",
		`,"turnstile_mode":"off"`:             "/turnstile_mode",
		`,"turnstile_action":"log"`:           "/turnstile_action",
	} {
		f, _ := errors.AsType[Faults](event(more))
		if want == "" && f != nil || want != "" && (len(f) != 1 || f[0].Pointer != want || f[0].Code != CodeNotSupported) {
			t.Errorf("%s: %v", more, f)
		}
	}
	s.cfg = newShelf(t, oneRoom).cfg
	if w := s.open().Wanted(); len(w) != 1 || !strings.Contains(w[0].Problem, "names no widget for \"visible_managed\"") {
		t.Errorf("%+v", w)
	}
}

// Rooms of the file show what they do.
func TestTurnstileOfARoomOfTheFile(t *testing.T) {
	room := func(challenge string) string {
		return "rooms:\n  - {name: main, origin: 'http://127.0.0.1:3000', total_active_users: 10, new_users_per_minute: 10, " +
			"challenge: {" + challenge + "}}\n"
	}
	for file, want := range map[string]string{
		room("kind: work"): "off log",
		room("kind: turnstile, sitekey: x-1, secret_file: a"):                         "visible_managed log",
		room("kind: turnstile, sitekey: x-1, secret_file: a, action: infinite_queue"): "visible_managed infinite_queue",
		"turnstile: {invisible: {sitekey: x-1, secret_file: a}}\n" +
			room("kind: turnstile, sitekey: x-1, secret_file: a"): "invisible log",
	} {
		all := newShelf(t, file).open().Rooms("")
		if got := all[0].TurnstileMode + " " + all[0].TurnstileAction; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
