package deliver

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/queue"
)

var (
	_ queue.Handler  = (*HTTP)(nil)
	_ queue.Throttle = (*Throttle)(nil)
)

// The example that the libraries of Standard Webhooks use in their tests.
func TestSignedAsStandardWebhooksSay(t *testing.T) {
	key, err := parseSecret("whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	at, signature := sign([][]byte{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0),
		[]byte(`{"test": 2432232314}`))
	if at != "1614265330" || signature != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("%s %s", at, signature)
	}
}

func secret(letter string) string {
	return secretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

func open(t *testing.T, target Target) *HTTP {
	t.Helper()
	h, err := Open(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func serve(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

func order() *queue.Job {
	return &queue.Job{ID: "orders-17", Key: "order 4711", OrderKey: "acme 7", Attempt: 3,
		Body:    []byte(`{"n":1}`),
		Headers: map[string]string{"content-type": "application/json", "X-Fixed": "the job's"}}
}

func TestWhatTheTargetGets(t *testing.T) {
	var got *http.Request
	var body []byte
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	target := Target{URL: s.URL + "/in?a=1", Method: "PUT", Secrets: []string{secret("n"), secret("o")},
		Headers: map[string]string{"x-fixed": "the operator's", "Host": "db.example"}}
	if out := open(t, target).Deliver(t.Context(), order()); out != (queue.Outcome{Status: 200}) {
		t.Fatalf("%+v", out)
	}
	at := got.Header.Get("Webhook-Timestamp")
	if sent, err := fmt.Sscan(at, new(int64)); err != nil || sent != 1 {
		t.Errorf("timestamp %q", at)
	}
	var stamp int64
	fmt.Sscan(at, &stamp)
	if age := time.Since(time.Unix(stamp, 0)); age < 0 || age > time.Minute {
		t.Errorf("a timestamp %v ago", age)
	}
	var keys [][]byte
	for _, s := range target.Secrets {
		key, _ := parseSecret(s)
		keys = append(keys, key)
	}
	_, signature := sign(keys, "orders-17", time.Unix(stamp, 0), []byte(`{"n":1}`))
	if strings.Count(signature, "v1,") != 2 {
		t.Errorf("%d signatures, want one of each secret", strings.Count(signature, "v1,"))
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "X-Fixed": {"the operator's"},
		"Content-Length": {"7"}, "User-Agent": {"headgate"}, "Idempotency-Key": {"order 4711"},
		"Headgate-Attempt": {"3"}, "Webhook-Id": {"orders-17"}, "Webhook-Timestamp": {at},
		"Headgate-Order-Key": {"acme 7"},
		"Webhook-Signature":  {signature},
	}
	if d := cmp.Diff(want, got.Header); d != "" {
		t.Error(d)
	}
	if got.Method != "PUT" || got.RequestURI != "/in?a=1" || got.Host != "db.example" ||
		string(body) != `{"n":1}` {
		t.Errorf("%s %s of %s: %s", got.Method, got.RequestURI, got.Host, body)
	}
}

func TestWhatAnAnswerMeans(t *testing.T) {
	code, after := 0, ""
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
	})
	h := open(t, Target{URL: s.URL})
	for _, c := range []struct {
		code              int
		after             string
		done, again, busy bool
		wait              time.Duration
		text              string
	}{
		{code: 200, done: true},
		{code: 204, done: true},
		{code: 299, done: true},
		{code: 301, text: "301 Moved Permanently: no redirect is followed; set the url that is meant"},
		{code: 400, text: "400 Bad Request"},
		{code: 404, text: "404 Not Found"},
		{code: 408, again: true, text: "408 Request Timeout"},
		{code: 410, text: "410 Gone"},
		{code: 425, again: true, text: "425 Too Early"},
		{code: 429, again: true, busy: true, text: "429 Too Many Requests"},
		{code: 429, after: "7", again: true, busy: true, wait: 7 * time.Second,
			text: "429 Too Many Requests"},
		{code: 500, again: true, text: "500 Internal Server Error"},
		{code: 503, again: true, busy: true, text: "503 Service Unavailable"},
		{code: 503, after: "99999999999999999999999", again: true, busy: true, wait: time.Hour,
			text: "503 Service Unavailable"},
		{code: 503, after: "soon", again: true, busy: true, text: "503 Service Unavailable"},
		{code: 503, after: "-1", again: true, busy: true, text: "503 Service Unavailable"},
		{code: 599, again: true, text: "599 "},
	} {
		code, after = c.code, c.after
		out := h.Deliver(t.Context(), order())
		text := ""
		if out.Err != nil {
			text = out.Err.Error()
		}
		if c.text != "" {
			c.text = "the target answered " + c.text
		}
		if (out.Err == nil) != c.done || out.Retry != c.again || out.Busy != c.busy ||
			out.RetryAfter != c.wait || text != c.text {
			t.Errorf("%d %q: %+v", c.code, c.after, out)
		}
	}
}

func TestADateInRetryAfterIsCountedFromTheTargetsOwn(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{now.Add(time.Minute).Format(http.TimeFormat), "", time.Minute},
		{now.Add(time.Minute).Format(http.TimeFormat), now.Add(50 * time.Second).Format(http.TimeFormat),
			10 * time.Second},
		{now.Add(-time.Minute).Format(http.TimeFormat), "", 0},
		{now.Add(1000 * time.Hour).Format(http.TimeFormat), "", time.Hour},
		{now.Add(time.Minute).Format(http.TimeFormat), "yesterday", time.Minute},
		{"", "", 0}, {"0", "", 0}, {"120", "", 2 * time.Minute}, {"1.5", "", 0},
	} {
		h := http.Header{"Retry-After": {c.after}, "Date": {c.date}}
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.after, c.date, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "-1", "1e9", "Wed, 01 Jul 2026 12:00:00 GMT", "", "９"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, after, date string) {
		d := retryAfter(http.Header{"Retry-After": {after}, "Date": {date}}, time.Unix(1e9, 0))
		if d < 0 || d > mostAfter {
			t.Errorf("%q at %q: %v", after, date, d)
		}
	})
}

// A target that reads a job and breaks the connection may have accepted it. The queue, which counts
// attempts, decides about a retry. net/http would resend it at once.
func TestNothingIsSentTwiceByItself(t *testing.T) {
	for _, method := range []string{"POST", "GET", "DELETE"} {
		var taken atomic.Int64
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if taken.Add(1) == 1 {
				return // the connection is kept and reused
			}
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
		h := open(t, Target{URL: s.URL, Method: method})
		for n, body := range []string{"x", "x", "", "x", ""} {
			j := order()
			j.Body = []byte(body)
			out := h.Deliver(t.Context(), j)
			first, got := n == 0, taken.Load()
			if got != int64(n+1) || (out.Err == nil) != first || out.Retry == first {
				t.Errorf("%s: the target has had %d of %d: %+v", method, got, n+1, out)
			}
			if !first { // a kept connection again
				taken.Store(0)
				h.Deliver(t.Context(), j)
				taken.Store(int64(n + 1))
			}
		}
	}
}

func TestConnectionsAreKept(t *testing.T) {
	var dialed atomic.Int64
	answer := strings.Repeat("x", 10<<10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, answer)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dialed.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	h := open(t, Target{URL: s.URL})
	for range 50 {
		if out := h.Deliver(t.Context(), order()); out.Err != nil {
			t.Fatal(out.Err)
		}
	}
	if n := dialed.Load(); n != 1 {
		t.Errorf("%d connections for one job after the other, want 1", n)
	}
	// A target with an endless answer loses the connection and delays nothing.
	answer = strings.Repeat("x", 10<<20)
	if out := h.Deliver(t.Context(), order()); out.Err != nil {
		t.Error(out.Err)
	}
}

func TestJobsDoNotOverrideWhatTheOperatorSets(t *testing.T) {
	got := make(chan *http.Request, 1)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r })
	h := open(t, Target{URL: s.URL, Secrets: []string{secret("s")}})
	for _, name := range []string{"Host", "host", "Connection", "TE", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Trailer", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Expect",
		"webhook-id", "Webhook-Signature", "webhook-timestamp", "webhook_signature", "Idempotency-Key",
		"X-Idempotency-Key", "Headgate-Attempt", "a b", "", "x:y", "X_A", "ä"} {
		j := order()
		j.Headers = map[string]string{name: "v-1"}
		out := h.Deliver(t.Context(), j)
		if out.Err == nil || out.Retry || queue.CheckHeaders(j.Headers, false) == nil {
			t.Errorf("%q: %+v", name, out)
		} else if strings.Contains(out.Err.Error(), "v-1") {
			t.Errorf("%q: the error holds the value: %v", name, out.Err)
		}
	}
	for _, headers := range []map[string]string{
		{"X-A": "1\r\nHost: evil.example"}, {"X-A": "\x00"}, {"x-a": "1", "X-A": "2"},
		{"X-A": strings.Repeat("x", queue.MaxHeader)}, many(queue.MaxHeaders + 1),
	} {
		if queue.CheckHeaders(headers, false) == nil {
			t.Errorf("%.80q passes", headers)
		}
	}
	if err := queue.CheckHeaders(many(queue.MaxHeaders), false); err != nil {
		t.Error(err)
	}
	select {
	case r := <-got:
		t.Errorf("the target got %v", r.Header)
	default:
	}
}

func many(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint("X-", i)] = "1"
	}
	return m
}

func TestASlowTargetAndAStop(t *testing.T) {
	arrived, leave := make(chan bool, 2), make(chan bool)
	s := serve(t, func(_ http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-leave
	})
	defer close(leave)
	quick := Target{URL: s.URL, Timeout: 50 * time.Millisecond}
	out := open(t, quick).Deliver(t.Context(), order())
	if out.Err == nil || !out.Retry || out.Busy ||
		out.Err.Error() != "no answer of the target within 50ms" {
		t.Errorf("%+v", out)
	}
	<-arrived
	ctx, stop := context.WithCancel(t.Context())
	h := open(t, Target{URL: s.URL})
	done := make(chan queue.Outcome)
	go func() { done <- h.Deliver(ctx, order()) }()
	<-arrived
	stop()
	out = <-done
	if out.Err == nil || !out.Retry || out.Err.Error() != "stopped before the target's answer" {
		t.Errorf("%+v", out)
	}
}

// Errors appear in logs, in the list of dead jobs and on the operator's screen.
func TestErrorsHoldNoSecretAndNoBody(t *testing.T) {
	const hidden = "hush-hush"
	raw := func(answer string) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, answer)
				c.Close()
			}
		}()
		return "http://" + ln.Addr().String()
	}
	plain := raw("HTTP/1.1 500 " + hidden + "\r\nX: " + hidden + "\r\n\r\n" + hidden)
	closed := loopback.Free(t)
	for name, url := range map[string]string{
		"status":   plain,
		"no HTTP":  raw(hidden + "\r\n\r\n"),
		"half":     raw("HTTP/1.1 200 OK\r\nBroken " + hidden + "\r\n"),
		"nothing":  raw(""),
		"no TLS":   strings.Replace(plain, "http://", "https://", 1),
		"refused":  "http://" + closed,
		"no host":  "http://nobody.invalid",
		"huge":     raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat(hidden, 100_000) + "\r\n\r\n"),
		"too long": raw("HTTP/1.1 2" + strings.Repeat("0", 1000) + " " + hidden + "\r\n\r\n"),
	} {
		h := open(t, Target{URL: url + "/?token=" + hidden, Secrets: []string{secret("h")},
			Headers: map[string]string{"Authorization": hidden}})
		j := order()
		j.Body = []byte(hidden)
		out := h.Deliver(t.Context(), j)
		if out.Err == nil || !out.Retry || out.Busy {
			t.Errorf("%s: %+v", name, out)
			continue
		}
		if text := out.Err.Error(); strings.Contains(text, hidden) || len(text) > 300 {
			t.Errorf("%s: %s", name, text)
		}
		t.Log(name, ": ", out.Err)
	}
	_, err := Open(Target{URL: "ftp://me:" + hidden + "@x/#" + hidden, Method: "BREW", Timeout: -1,
		Secrets: []string{hidden, secretPrefix + hidden, "", "", ""}, Key: "k",
		Headers: map[string]string{"Upgrade": hidden, "X": hidden + "\n"}})
	if err == nil || strings.Contains(err.Error(), hidden) || strings.Count(err.Error(), "\n") < 9 {
		t.Error(err)
	}
	if _, err = Open(Target{URL: "http://[::1" + hidden}); err == nil || strings.Contains(err.Error(), hidden) {
		t.Error(err)
	}
}

// identity creates a self-signed certificate and its key, as files.
func identity(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	text, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(kind string, text []byte) string {
		path := filepath.Join(t.TempDir(), name+".pem")
		text = pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("CERTIFICATE", text), write("PRIVATE KEY", secret)
}

func TestATargetWithTLS(t *testing.T) {
	theirs, theirKey := identity(t, "target")
	ours, ourKey := identity(t, "headgate")
	pair, err := tls.LoadX509KeyPair(theirs, theirKey)
	if err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	text, _ := os.ReadFile(ours)
	known.AppendCertsFromPEM(text)
	var who string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		who = r.TLS.PeerCertificates[0].Subject.CommonName
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: known,
		ClientAuth: tls.RequireAndVerifyClientCert}
	s.StartTLS()
	defer s.Close()
	good := Target{URL: s.URL, CA: theirs, Certificate: ours, Key: ourKey}
	if out := open(t, good).Deliver(t.Context(), order()); out.Err != nil || who != "headgate" {
		t.Errorf("%v, by %q", out.Err, who)
	}
	for _, c := range []struct {
		target Target
		want   string
	}{
		{Target{URL: s.URL, Certificate: ours, Key: ourKey}, "the target's certificate: x509"},
		{Target{URL: s.URL, CA: theirs},
			"the connection to the target: remote error: tls: certificate required"},
	} {
		out := open(t, c.target).Deliver(t.Context(), order())
		if out.Err == nil || !out.Retry || !strings.HasPrefix(out.Err.Error(), c.want) {
			t.Errorf("%+v, want %s", out, c.want)
		}
	}
	for _, wrong := range []Target{
		{URL: s.URL, CA: ourKey}, {URL: s.URL, CA: "none.pem"}, {URL: "http://x", CA: theirs},
		{URL: s.URL, Certificate: ours, Key: theirKey},
	} {
		if _, err := Open(wrong); err == nil {
			t.Errorf("%+v opens", wrong)
		}
	}
}

func BenchmarkDeliver(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}))
	defer s.Close()
	h, err := Open(Target{URL: s.URL, Secrets: []string{secret("s")}})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	b.ReportAllocs()
	for b.Loop() {
		if out := h.Deliver(b.Context(), order()); out.Err != nil {
			b.Fatal(out.Err)
		}
	}
}
