package cloudflare

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	wr "github.com/cloudflare/cloudflare-go/v6/waiting_rooms"
)

// asks polls as the waiting page does, with the token of a widget or "".
func (v *visitor) asks(host, token string) (m struct {
	State, Ticket string
	Position      int64
	ETA           *float64 `json:"eta_seconds"`
	Challenge     *struct{ Kind, Sitekey string }
}) {
	v.g.t.Helper()
	r, err := http.NewRequestWithContext(v.g.t.Context(), "GET", "http://"+v.g.visitors+"/", nil)
	if err != nil {
		v.g.t.Fatal(err)
	}
	r.Host, r.Header = host, http.Header{"Headgate-Poll": {"1"}, "Accept": {"application/json"}, "Headgate-Solution": {token}}
	at := *r.URL
	at.Host = host
	for _, c := range v.jar.Cookies(&at) {
		r.AddCookie(c)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		v.g.t.Fatal(err)
	}
	defer res.Body.Close()
	v.jar.SetCookies(&at, res.Cookies())
	if err := json.NewDecoder(res.Body).Decode(&struct{ Headgate any }{&m}); err != nil {
		v.g.t.Fatal(err)
	}
	return m
}

// The values of turnstile_mode and turnstile_action mean in headgate what they mean at Cloudflare: a client
// that fails waits without end, and comes in once an operator releases its ticket.
func TestTurnstile(t *testing.T) {
	party := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch token := r.FormValue("response"); {
		case r.FormValue("secret") != "a-secret":
			io.WriteString(w, `{"success":false,"error-codes":["invalid-input-secret"]}`)
		case strings.HasPrefix(token, "good"):
			io.WriteString(w, `{"success":true,"hostname":"fair.example.com"}`)
		default:
			io.WriteString(w, `{"success":false,"error-codes":["invalid-input-response"]}`)
		}
	}))
	t.Cleanup(party.Close)
	g := build(t)
	g.stop()
	g.write("secret", "a-secret\n")
	file, err := os.ReadFile(filepath.Join(g.dir, "headgate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	g.write("headgate.yaml", "turnstile:\n  visible_managed: {sitekey: 0x4AAA-managed, secret_file: secret, verify_url: '"+
		party.URL+"/siteverify'}\n"+string(file))
	g.write("token", g.run("token", "create", "--scope", "release:fair", "--data", g.dir+"/data"))
	g.start()
	c, ctx, fields := g.client(g.token), t.Context(), query("fair")
	create := func(mode wr.QueryTurnstileMode, action wr.QueryTurnstileAction) (*wr.WaitingRoom, error) {
		q := with[wr.QueryParam](v{"Name": "fair", "Host": "fair.example.com", "TotalActiveUsers": int64(300),
			"NewUsersPerMinute": int64(200), "QueueAll": true, "TurnstileMode": mode, "TurnstileAction": action})
		return c.New(ctx, with[wr.WaitingRoomNewParams](v{"ZoneID": zone, "Query": q}))
	}
	_, err = create(wr.QueryTurnstileModeVisibleNonInteractive, wr.QueryTurnstileActionLog)
	refused(t, err, "/turnstile_mode") // the file has no widget for it
	_, err = create(wr.QueryTurnstileModeInvisible, wr.QueryTurnstileActionInfiniteQueue)
	refused(t, err, "/turnstile_mode")
	r, err := create(wr.QueryTurnstileModeVisibleManaged, wr.QueryTurnstileActionInfiniteQueue)
	if err != nil || r.TurnstileMode != wr.WaitingRoomTurnstileModeVisibleManaged ||
		r.TurnstileAction != wr.WaitingRoomTurnstileActionInfiniteQueue {
		t.Fatalf("%+v, %v", r, err)
	}
	const host = "fair.example.com"
	eventually(t, "in force", func() bool { return g.get(host, "/").Header.Get("Headgate-State") != "" })
	good, bad := g.visitor(), g.visitor()
	for _, v := range []*visitor{good, bad} {
		v.get(host, "/")
		if m := v.asks(host, ""); m.Challenge == nil || m.Challenge.Kind != "turnstile" || m.Challenge.Sitekey != "0x4AAA-managed" {
			t.Fatalf("%+v", m)
		}
	}
	if m := good.asks(host, "good"); m.Challenge != nil || m.Position != 1 {
		t.Fatalf("%+v", m)
	}
	m := bad.asks(host, "bad")
	if m.Challenge != nil || m.Ticket == "" || m.ETA != nil || bad.asks(host, "good2").Challenge != nil {
		t.Fatalf("%+v", m)
	}
	_, err = c.Edit(ctx, r.ID, with[wr.WaitingRoomEditParams](v{"ZoneID": zone,
		"Query": with[wr.QueryParam](v{"Name": "fair", "Host": host, "TotalActiveUsers": fields.TotalActiveUsers.Value,
			"NewUsersPerMinute": fields.NewUsersPerMinute.Value, "QueueAll": false})}))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "in", func() bool { return good.asks(host, "").State == "called" })
	if res := good.get(host, "/"); res.Header.Get("Headgate-State") != "" {
		t.Error("it is not in")
	}
	if now := bad.asks(host, ""); now.State != "waiting" || now.Ticket != m.Ticket || now.Position != 0 || now.ETA != nil {
		t.Errorf("%+v", now)
	}
	g.run("ticket", "release", "fair", m.Ticket, "--admin", "http://"+g.admin, "--token-file", filepath.Join(g.dir, "token"))
	eventually(t, "in after the release", func() bool { return bad.asks(host, "").State == "called" })
	if _, err := c.Edit(ctx, r.ID, with[wr.WaitingRoomEditParams](v{"ZoneID": zone,
		"Query": with[wr.QueryParam](v{"TurnstileMode": wr.QueryTurnstileModeOff})})); err != nil {
		t.Fatal(err)
	}
	if v := g.visitor(); v.asks(host, "").Challenge != nil {
		t.Error("a challenge in a room without")
	}
}
