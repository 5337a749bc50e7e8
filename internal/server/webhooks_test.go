package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/webhook"
)

// A letter is a message as a receiver gets it.
type letter struct {
	id, kind, signature, timestamp string
	answered                       int
	header                         http.Header
	text                           []byte
	body                           struct {
		Type      string
		Timestamp time.Time
		Version   int
		Data      struct {
			Number            uint64
			Room, Limit       string
			Datacenter        string
			By, Link, Webhook string
			Changes           []webhook.Change
			Figures           *webhook.Counts
		}
	}
}

// A receiver is a real HTTP server that records what it receives. It answers the next message with
// the first of answers, and with 204 when there are no more.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	letters []letter
	answers []int
}

func newReceiver(t *testing.T, answers ...int) *receiver {
	g := &receiver{answers: answers}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := letter{id: r.Header.Get("webhook-id"), signature: r.Header.Get("webhook-signature"),
			timestamp: r.Header.Get("webhook-timestamp"), header: r.Header, answered: http.StatusNoContent}
		l.text, _ = io.ReadAll(r.Body)
		if err := json.Unmarshal(l.text, &l.body); err != nil || r.URL.Path != "/in" {
			t.Errorf("%s: %v: %s", r.URL, err, l.text)
		}
		l.kind = l.body.Type
		g.mu.Lock()
		if len(g.answers) > 0 {
			l.answered, g.answers = g.answers[0], g.answers[1:]
		}
		g.letters = append(g.letters, l)
		g.mu.Unlock()
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(l.answered)
		if l.answered == http.StatusInternalServerError {
			chunk := make([]byte, 1<<20)
			for range 10 { // only a little of it is read
				w.Write(chunk)
			}
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *receiver) got() []letter {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.letters)
}

// taken returns the messages that were answered with 2xx, as "kind subject".
func (g *receiver) taken() (all []string) {
	for _, l := range g.got() {
		if l.answered/100 == 2 {
			all = append(all, strings.TrimSpace(l.kind+" "+l.body.Data.Room+l.body.Data.Limit))
		}
	}
	return all
}

// awaits waits for these messages, in any order.
func (g *receiver) awaits(t *testing.T, what ...string) {
	t.Helper()
	slices.Sort(what)
	yardstick.Await(t, fmt.Sprintf("taken: %q", what), func() bool {
		got := g.taken()
		if slices.Sort(got); len(got) > len(what) {
			t.Fatalf("got %q, want %q", got, what)
		}
		return slices.Equal(got, what)
	})
}

// verify follows the text of Standard Webhooks 1.0.0, "Verifying signatures", alone.
func verify(secret string, l *letter, now time.Time) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(l.timestamp, 10, 64)
	if err != nil {
		return err
	}
	if away := now.Sub(time.Unix(at, 0)).Abs(); away > 5*time.Minute {
		return fmt.Errorf("the timestamp is %v away", away)
	}
	if l.id == "" || strings.Contains(l.id, ".") {
		return fmt.Errorf("the id is %q", l.id)
	}
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s.%s.%s", l.id, l.timestamp, l.text)
	want := h.Sum(nil)
	for one := range strings.SplitSeq(l.signature, " ") {
		text, ok := strings.CutPrefix(one, "v1,")
		got, err := base64.StdEncoding.DecodeString(text)
		if ok && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("no signature of %q is good", l.signature)
}

const (
	oneSecret   = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	otherSecret = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY="
)

// secretFile writes a secret to a file and returns its path.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// hooked returns a file with a webhook to each receiver: ops, then ops2 and so on.
func hooked(secret, more string, to ...*receiver) string {
	var text strings.Builder
	text.WriteString(shop + "webhooks:\n")
	for i, g := range to {
		name := "ops"
		if i > 0 {
			name += strconv.Itoa(i + 1)
		}
		text.WriteString(fmt.Sprintf("  - {name: %s, url: '%s/in?key=hunter2', secret_files: [%s]%s}\n", name, g.URL,
			secret, more))
	}
	return text.String()
}

func (p *process) webhooks() []api.Webhook {
	p.t.Helper()
	var got struct{ Webhooks []api.Webhook }
	r := get(p.t, p.operators+"/v1/webhooks", "")
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.StatusCode != http.StatusOK {
		p.t.Fatal(r.Status, err, r.body)
	}
	if strings.Contains(r.body, "hunter2") || strings.Contains(r.body, "/in") ||
		strings.Contains(r.body, "whsec") {
		p.t.Fatalf("the answer has what may be a secret: %s", r.body)
	}
	return got.Webhooks
}

// told returns the record of what was sent about a room, once there is one with its limits.
func (p *process) told(room string) (rec webhook.Record) {
	p.t.Helper()
	within(p.t, time.Minute, "a record of what was told", func() bool {
		value, _, err := p.s.node.Records.Load(p.t.Context(), happeningKey(room))
		if err != nil {
			return false
		}
		if rec, err = webhook.Parse(value); err != nil {
			p.t.Fatal(err)
		}
		return rec.Limits != nil
	})
	return rec
}

// A message about a line is signed, with figures and a link, and repeated until the receiver
// accepts it, each time the same except for the timestamp.
func TestWebhookIsSentUntilItIsTaken(t *testing.T) {
	t.Parallel()
	g := newReceiver(t, http.StatusInternalServerError, http.StatusMovedPermanently, http.StatusNotFound)
	secret := secretFile(t, oneSecret)
	p := run(t, hooked(secret, ", dashboard: 'https://ops.example.com/dashboard/'", g))
	fill(t, p)
	g.awaits(t, "queueing_started shop")
	all := g.got()
	if len(all) != 4 {
		t.Fatalf("%d attempts, want 4", len(all))
	}
	for i := range all {
		l := &all[i]
		if err := verify(oneSecret, l, time.Now()); err != nil {
			t.Errorf("attempt %d: %v", i+1, err)
		}
		if err := verify(otherSecret, l, time.Now()); err == nil {
			t.Error("another secret is good too")
		}
		if l.id != all[0].id || string(l.text) != string(all[0].text) {
			t.Errorf("attempt %d is another message: %s %s", i+1, l.id, l.text)
		}
	}
	d := all[0].body.Data
	if f := d.Figures; f == nil || f.Waiting != 1 || f.Active != 1 || f.Total != 1 || f.Rate != 100 {
		t.Errorf("%s", all[0].text)
	}
	if d.Number != 1 || d.Link != "https://ops.example.com/dashboard/#/rooms/shop" ||
		all[0].body.Version != webhook.Version || all[0].header.Get("Content-Type") != "application/json" ||
		time.Since(all[0].body.Timestamp) > time.Minute {
		t.Errorf("%+v %s", all[0].header, all[0].text)
	}
	eventually(t, "told how it went", func() bool {
		w := p.webhooks()[0]
		return w.Sent == 1 && w.Failed == 3 && w.Waiting == 0 && w.LastSuccess != nil &&
			w.LastSuccess.ID == all[0].id && w.LastFailure != nil &&
			w.LastFailure.Why == "the target answered 404 Not Found" && w.Address == g.URL
	})
	m := get(t, p.operators+"/metrics", "").body
	for _, want := range []string{`headgate_webhook_sent_total{webhook="ops"} 1`,
		`headgate_webhook_failed_total{webhook="ops"} 3`, `headgate_webhook_waiting_messages{webhook="ops"} 0`} {
		if !strings.Contains(m, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	if r := get(t, p.operators+"/v1/queues", ""); r.body != `{"queues":[]}`+"\n" {
		t.Errorf("the queue of a webhook is told of: %s", r.body)
	}
	if log := p.log.String(); strings.Contains(log, "hunter2") || strings.Contains(log, "whsec_") {
		t.Error("a secret is in the log")
	}
}

// fill admits one visitor, who stays inside, and lets another one wait.
func fill(t *testing.T, p *process) {
	t.Helper()
	if r := get(t, p.visitors+"/", ""); r.StatusCode != http.StatusOK {
		t.Fatal(r.Status)
	}
	if r := get(t, p.visitors+"/", ""); r.StatusCode != http.StatusServiceUnavailable {
		t.Fatal(r.Status)
	}
}

// If a process dies after it recorded a message and before it sent it, the next process sends it,
// with the same id. A message that is in the queue already is not put again.
func TestWebhookGoesOnAfterItsSenderDied(t *testing.T) {
	t.Parallel()
	g := newReceiver(t)
	p := run(t, hooked(secretFile(t, oneSecret), "", g))
	p.told("shop")
	dies := func() { // as if it had died just after the write
		p.stop()
		p.write(hooked(secretFile(t, oneSecret), "", g))
		p.start()
	}
	m := webhook.Message{ID: "dead-1", Kind: webhook.OriginUnhealthy, At: time.Now(), Number: 1, Room: "shop"}
	leave := func() {
		t.Helper()
		value, revision, err := p.s.node.Records.Load(t.Context(), happeningKey("shop"))
		if err != nil {
			t.Fatal(err)
		}
		rec, err := webhook.Parse(value)
		if err != nil {
			t.Fatal(err)
		}
		rec.Pending = []webhook.Message{m}
		if value, err = rec.Encode(); err != nil {
			t.Fatal(err)
		}
		if _, err = p.s.node.Records.CompareAndSwap(t.Context(), happeningKey("shop"), revision, value); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	dies()
	g.awaits(t, "origin_unhealthy shop")
	eventually(t, "written down", func() bool { return len(p.told("shop").Pending) == 0 })
	leave()
	dies()
	eventually(t, "written down again", func() bool { return len(p.told("shop").Pending) == 0 })
	r := operate(t, p, "POST", "/v1/webhooks/ops/test", "") // queued behind it
	if r.StatusCode != http.StatusAccepted {
		t.Fatal(r.Status, r.body)
	}
	g.awaits(t, "origin_unhealthy shop", "test")
	if l := g.got()[0]; l.id != "dead-1" {
		t.Errorf("its id is %s", l.id)
	}
}

// operate sends a change with a token that may make it.
func operate(t *testing.T, p *process, method, path, body string) reply {
	t.Helper()
	secret, _, err := api.CreateToken(filepath.Join(p.dir, "data"),
		api.Token{Name: "ann", Scopes: []string{"write"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, p.operators+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	return fetch(t, http.DefaultTransport.RoundTrip, r)
}

// Messages about limits contain the author and the old and new values: for limits of rooms and
// named ones, changed by the API and by a reload, and only to the webhooks that have chosen them.
func TestWebhookTellsWhoChangedALimit(t *testing.T) {
	t.Parallel()
	all, shops, events := newReceiver(t), newReceiver(t), newReceiver(t)
	secret := secretFile(t, oneSecret)
	file := func(amount string) string {
		return "limits:\n  - {name: api, algorithm: sliding_log, amount: " + amount + ", window: 60s}\n" +
			hooked(secret, "", all, shops, events)
	}
	text := file("10")
	text = strings.Replace(text, "name: ops2, ", "name: ops2, rooms: [shop], ", 1)
	text = strings.Replace(text, "name: ops3, ", "name: ops3, on: [event_started], ", 1)
	p := run(t, text)
	p.told("shop")
	p.told(limitsWatched)
	change := func(method, path, body string, want int) {
		t.Helper()
		if r := operate(t, p, method, path, body); r.StatusCode != want {
			t.Fatal(r.Status, r.body)
		}
	}
	change("PATCH", "/v1/rooms/shop", `{"total_active_users": 7}`, http.StatusOK)
	all.awaits(t, "limit_changed shop")
	change("PATCH", "/v1/limits/api", `{"amount": 20}`, http.StatusOK)
	all.awaits(t, "limit_changed shop", "limit_changed api")
	more := `{"algorithm": "sliding_log", "amount": 1, "window": "1s"}`
	change("PUT", "/v1/limits/more", more, http.StatusCreated)
	all.awaits(t, "limit_changed shop", "limit_changed api", "limit_changed more")
	p.write(strings.Replace(text, "amount: 10", "amount: 30", 1))
	p.reload() // drops the live change of the room, too
	all.awaits(t, "limit_changed shop", "limit_changed api", "limit_changed more", "limit_changed shop",
		"limit_changed api")
	shops.awaits(t, "limit_changed shop", "limit_changed shop")
	events.awaits(t)
	want := map[string]string{
		"shop 7": "total_active_users 1", "shop 1": "total_active_users 7", "api 20": "amount 10",
		"api 30": "amount 20", "more 1": "amount ",
	}
	for _, l := range all.got() {
		d := l.body.Data
		i := slices.IndexFunc(d.Changes, func(c webhook.Change) bool {
			return c.Key == "amount" || c.Key == "total_active_users"
		})
		if i < 0 {
			t.Errorf("%s", l.text)
			continue
		}
		c, by := d.Changes[i], strings.HasSuffix(d.By, " ann")
		key := d.Room + d.Limit + " " + c.To
		if want[key] != c.Key+" "+c.From {
			t.Errorf("%s: %+v", key, c)
		}
		if file := key == "api 30" || key == "shop 1"; by == file || file && d.By != webhook.Configuration {
			t.Errorf("%s: by %q", key, d.By)
		}
	}
}

// The author of an amount that was found is its reason.
func TestWebhookTellsWhyAnAmountWasFound(t *testing.T) {
	t.Parallel()
	g := newReceiver(t)
	p := run(t, "limits:\n  - {name: api, algorithm: concurrency, amount: {auto: true, min: 2, max: 100}}\n"+
		hooked(secretFile(t, oneSecret), "", g))
	p.told(limitsWatched)
	p.finds("limit-found.api", 9)
	p.s.limits.TakeNews(t.Context())
	g.awaits(t, "limit_changed api")
	d := g.got()[0].body.Data
	if len(d.Changes) != 1 || d.Changes[0].To != "9" || !strings.HasPrefix(d.By, foundBy) || d.By == foundBy {
		t.Errorf("%+v", d)
	}
}

func TestReloadOpensRemovesAndChangesWebhooks(t *testing.T) {
	t.Parallel()
	first, second := newReceiver(t), newReceiver(t)
	secret := secretFile(t, oneSecret)
	p := run(t, shop)
	if got := p.webhooks(); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
	p.write(hooked(secret, "", first))
	if got := p.reload(); !slices.Equal(got.Webhooks.Added, []string{"ops"}) || len(got.NeedsRestart) != 0 {
		t.Fatalf("%+v", got)
	}
	tests := func(name string) {
		t.Helper()
		if r := operate(t, p, "POST", "/v1/webhooks/"+name+"/test", ""); r.StatusCode != http.StatusAccepted {
			t.Fatal(r.Status, r.body)
		}
	}
	tests("ops")
	first.awaits(t, "test")
	other := secretFile(t, otherSecret)
	p.write(hooked(secret+", "+other, "", second, first))
	if got := p.reload(); !slices.Equal(got.Webhooks.Added, []string{"ops2"}) ||
		!slices.Equal(got.Webhooks.Changed, []string{"ops"}) {
		t.Fatalf("%+v", got)
	}
	tests("ops")
	second.awaits(t, "test")
	l := second.got()[0]
	for _, s := range []string{oneSecret, otherSecret} { // during a rotation of the secret
		if err := verify(s, &l, time.Now()); err != nil {
			t.Error(err)
		}
	}
	p.write(hooked(secret, "", second))
	if got := p.reload(); !slices.Equal(got.Webhooks.Removed, []string{"ops2"}) {
		t.Fatalf("%+v", got)
	}
	if r := operate(t, p, "POST", "/v1/webhooks/ops2/test", ""); r.StatusCode != http.StatusNotFound ||
		!strings.Contains(r.body, "no_such_webhook") {
		t.Fatal(r.Status, r.body)
	}
	p.write(strings.Replace(hooked(secret, "", second), secret, p.dir+"/none", 1))
	if _, err := p.s.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), `webhook "ops"`) {
		t.Fatalf("a secret that is not there: %v", err)
	}
	tests("ops")
	second.awaits(t, "test", "test")
	first.awaits(t, "test")
}

// A receiver that answers 410 gets nothing more, also after a restart, until it accepts a test.
func TestWebhookIsSwitchedOffByGone(t *testing.T) {
	t.Parallel()
	g := newReceiver(t, http.StatusGone)
	secret := secretFile(t, oneSecret)
	p := run(t, hooked(secret, ", on: [limit_changed]", g))
	p.told("shop")
	set := func(users string) {
		t.Helper()
		r := operate(t, p, "PATCH", "/v1/rooms/shop", `{"total_active_users": `+users+`}`)
		if r.StatusCode != http.StatusOK {
			t.Fatal(r.Status, r.body)
		}
	}
	set("2")
	eventually(t, "off", func() bool { return p.webhooks()[0].OffSince != nil })
	p.stop()
	p.start()
	set("3")
	eventually(t, "given up", func() bool { return p.webhooks()[0].Dropped == 2 })
	if n := len(g.got()); n != 1 {
		t.Fatalf("%d messages after 410", n)
	}
	m := get(t, p.operators+"/metrics", "").body
	if !strings.Contains(m, `headgate_webhook_off{webhook="ops"} 1`) {
		t.Error("the metrics say nothing of it")
	}
	if r := operate(t, p, "POST", "/v1/webhooks/ops/test", ""); r.StatusCode != http.StatusAccepted {
		t.Fatal(r.Status, r.body)
	}
	g.awaits(t, "test")
	eventually(t, "on", func() bool { return p.webhooks()[0].OffSince == nil })
	set("4")
	g.awaits(t, "test", "limit_changed shop")
}

// The author of a change and the watch of a room write the same record: neither overwrites the
// other.
func TestNoteOfAChangeStandsBesideTheWatch(t *testing.T) {
	t.Parallel()
	g := newReceiver(t)
	p := run(t, hooked(secretFile(t, oneSecret), "", g))
	p.told("shop")
	var wg sync.WaitGroup
	for i := range 4 { // each tries for a second
		wg.Go(func() { p.s.noteChange(context.Background(), "shop", "", nil, "n"+strconv.Itoa(i)) })
	}
	wg.Wait()
	if rec := p.told("shop"); len(rec.Notes) != 4 {
		t.Errorf("%d notes, want 4: %+v", len(rec.Notes), rec.Notes)
	}
}
