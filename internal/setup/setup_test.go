package setup

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/schema"
)

const home = `<!doctype html><link rel=stylesheet href="/assets/css/app.css?v=3"><link rel="icon" href="/favicon.ico">
<script src="/assets/js/app.js"></script><script src="https://cdn.example.com/x.js"></script>
<a href="/products/duck">Duck</a> <a href='/checkout/start'>Pay</a> <a href='/checkout.php'>Pay</a> <a href="/media/gallery">Gallery</a>
<img src="/media/products/duck.webp"><img src="/media/top.webp"><form action="/api/newsletter" method=post></form>
<a href="/assets/../../etc/passwd">x</a> <a href="/a%0Ab">x</a> <script>fetch("/api/cart?x=1")</script>`

// shop answers as a shop does.
func shop() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, home) })
	mux.HandleFunc("GET /assets/js/app.js", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "axios.post(`/graphql`);")
	})
	mux.HandleFunc("GET /robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "User-agent: *\nDisallow: /admin\nDisallow: /stripe/webhooks/*\n")
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /webhooks", func(http.ResponseWriter, *http.Request) {})
	return mux
}

func look(t *testing.T, server *httptest.Server) *Findings {
	t.Helper()
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Look(t.Context(), http.DefaultTransport, u, "")
}

func TestALookAtAShop(t *testing.T) {
	s := look(t, httptest.NewServer(shop()))
	if s.Err != nil || s.Status != 200 || s.Away != "" || s.Cut {
		t.Errorf("got %+v", s)
	}
	want := map[Kind][]Path{
		Asset:    {{"/assets/", 2}, {"/media/products/", 1}, {"/media/top.webp", 1}},
		Webhook:  {{"/stripe/webhooks/", 1}, {"/webhooks", 0}, {"/webhooks/", 0}},
		Probe:    {{"/healthz", 0}},
		API:      {{"/api/", 2}, {"/graphql", 1}},
		Checkout: {{"/checkout.php", 1}, {"/checkout/", 1}},
	}
	if diff := cmp.Diff(want, s.Paths); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The parts that Next.js makes for each visitor do not bypass the room.
func TestOnlyFilesOfNextBypass(t *testing.T) {
	s := look(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, `<script src="/_next/static/chunks/main.js"></script><img src="/_next/image?url=x">`)
	})))
	if diff := cmp.Diff([]Path{{"/_next/static/", 1}}, s.Excluded()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A single-page app answers each path with its page: what it answers proves nothing.
func TestASiteThatAnswersEverythingIsNotBelieved(t *testing.T) {
	s := look(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "Disallow: /webhooks/\n"+`<div id="app"></div>`)
	})))
	if s.Err != nil || len(s.Excluded()) > 0 {
		t.Errorf("got %+v", s)
	}
}

func TestOriginsThatDoNotAnswer(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1)) // an answer before the request is another error
			io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n")
			c.Close()
		}
	}()
	defer func() { garbage.Close(); <-done }()
	plain, private := httptest.NewServer(shop()), httptest.NewUnstartedServer(shop())
	private.Config.ErrorLog = log.New(io.Discard, "", 0)
	private.StartTLS()
	defer plain.Close()
	defer private.Close()
	for _, x := range []struct{ url, problem, do string }{
		{closed.URL, "connection refused", "start the site"},
		{"http://" + garbage.Addr().String(), "malformed HTTP", "check the address"},
		{strings.Replace(plain.URL, "http:", "https:", 1), "does not speak https", "write http://"},
		{private.URL, "certificate is not valid here", "add its CA"},
	} {
		u, err := url.Parse(x.url)
		if err != nil {
			t.Fatal(err)
		}
		s := Look(t.Context(), &http.Transport{}, u, "")
		if s.Err == nil {
			t.Errorf("%s: got an answer", x.url)
			continue
		}
		problem, do := Explain(s.Err)
		if !strings.Contains(problem, x.problem) || !strings.Contains(do, x.do) {
			t.Errorf("%s: got %q, %q", x.url, problem, do)
		}
	}
}

// An answer takes a time, or never comes.
type slow struct {
	after time.Duration
	sent  int
	body  string
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.sent++
	select {
	case <-time.After(s.after):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(s.body))}, nil
}

func TestALookIsBounded(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "shop.example"}
	synctest.Test(t, func(t *testing.T) {
		begun, site := time.Now(), Look(t.Context(), &slow{after: time.Hour}, u, "")
		if took := time.Since(begun); site.Err == nil || took != mostWait {
			t.Errorf("of a silent site got %v after %v", site.Err, took)
		}
		if problem, _ := Explain(site.Err); problem != "it did not answer within 5s" {
			t.Errorf("got %q", problem)
		}
		begun = time.Now()
		site = Look(t.Context(), &slow{after: 4 * time.Second, body: home}, u, "")
		if took := time.Since(begun); took > mostTime || !site.Cut || site.Median != 4*time.Second {
			t.Errorf("of a slow site got %+v after %v", site, took)
		}
		var all strings.Builder
		for i := range 50_000 {
			fmt.Fprintf(&all, `<script src="/a%d/x.js"></script><a href="/b%d">`, i, i)
		}
		many := &slow{body: all.String()}
		site = Look(t.Context(), many, u, "")
		if n := len(site.Paths[Asset]); many.sent > 40 || n > mostProposed {
			t.Errorf("sent %d requests, got %d paths", many.sent, n)
		}
	})
}

func TestALookNeverLeavesTheSite(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the other site was asked")
	}))
	defer other.Close()
	hops := 0
	s := look(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hops++; r.URL.Path == "/" {
			http.Redirect(w, r, other.URL+"/login", http.StatusFound)
			return
		}
		http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
	})))
	if s.Away != other.URL || s.Status != 302 || hops > 40 {
		t.Errorf("got %+v after %d requests", s, hops)
	}
}

// Another port of the host of visitors is another program, also where the site redirects to it.
func TestALookStaysAtTheHostOfVisitors(t *testing.T) {
	for to, want := range map[string]int{
		"https://shop.example/de/": 200, "http://shop.example:6379/": 302, "gopher://shop.example/": 302,
	} {
		var asked []string
		site := Look(t.Context(), trip(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Scheme+"://"+r.URL.Host)
			a := &http.Response{StatusCode: 200, Header: http.Header{}, Request: r, Body: http.NoBody}
			if r.URL.Host == "10.0.0.1" && r.URL.Path == "/" {
				a.StatusCode = 302
				a.Header.Set("Location", to)
			}
			return a, nil
		}), &url.URL{Scheme: "http", Host: "10.0.0.1"}, "shop.example")
		if site.Status != want {
			t.Errorf("a redirect to %s: got %+v, asked %q", to, site, asked)
		}
	}
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What a site says must not command the terminal of its operator.
func TestWhatIsShownOfASiteIsText(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "shop.example"}
	for name, answer := range map[string]trip{
		"redirect": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 302, Request: r, Body: http.NoBody,
				Header: http.Header{"Location": {"http://a%c2%9b31mb%e2%80%ae.example/"}}}, nil
		},
		"error": func(*http.Request) (*http.Response, error) {
			return nil, errors.New("malformed MIME header initial line: \x1b]0;x\a\r\n\u009b31m")
		},
		"certificate": func(*http.Request) (*http.Response, error) {
			return nil, &tls.CertificateVerificationError{Err: x509.HostnameError{Host: "shop.example",
				Certificate: &x509.Certificate{DNSNames: []string{"\x1b[2J"}}}}
		},
	} {
		var out strings.Builder
		Look(t.Context(), answer, u, "").report(&out)
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%s: %q", name, out.String())
		}
	}
}

// A page with as many and as deep links as are kept is sorted at once: it took minutes.
func TestDeepPathsAreSorted(t *testing.T) {
	folder := strings.Repeat("/a", 90)
	var page strings.Builder
	for i := range mostPaths - 1 {
		fmt.Fprintf(&page, `<img src="%s/%d.png">`, folder, i)
	}
	fmt.Fprintf(&page, `<a href="%s/x">`, folder)
	l := &looker{origin: &url.URL{Scheme: "http", Host: "shop.example"}, seen: map[string]bool{},
		site: &Findings{Paths: map[Kind][]Path{}}}
	l.links(page.String(), true)
	l.sort()
	if n := len(l.site.Paths[Asset]); n != mostProposed || len(l.mixed) != 91 {
		t.Errorf("%d paths, %d folders", n, len(l.mixed))
	}
}

// A link that somebody has put beside the file leads nowhere.
func TestTheSchemaFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "conf")
	link := filepath.Join(conf, schema.File)
	if err := errors.Join(os.Mkdir(conf, 0o755), os.Symlink(other, link)); err != nil {
		t.Fatal(err)
	}
	_, err := run(t, &Command{File: filepath.Join(conf, "headgate.yaml")})
	if b, _ := os.ReadFile(other); err != nil || string(b) != "mine" {
		t.Errorf("%v, and the other file has %.20q", err, b)
	}
	if i, err := os.Lstat(link); err != nil || !i.Mode().IsRegular() {
		t.Errorf("%v %v", i, err)
	}
}

// run runs headgate init against the shop, with answers.
func run(t *testing.T, c *Command) (said string, err error) {
	t.Helper()
	server := httptest.NewServer(shop())
	defer server.Close()
	if c.Ask == nil {
		c.Answers.Origin = server.URL
	} else {
		b, err := io.ReadAll(c.Ask)
		if err != nil {
			t.Fatal(err)
		}
		c.Ask = strings.NewReader(strings.ReplaceAll(string(b), "ORIGIN", server.URL))
	}
	var out bytes.Buffer
	c.Out, c.Questions, c.Transport = &out, &out, http.DefaultTransport
	err = c.Run(t.Context())
	return out.String(), err
}

func TestInitWritesAFileThatCheckAccepts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	said, err := run(t, &Command{File: file})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil || len(c.Warnings) > 0 {
		t.Fatalf("%v %v", err, c)
	}
	r := c.Rooms[0]
	if r.Name != "main" || r.Auto.Mode != config.AutoOn || len(r.Exclude.Paths) != 3+7 || len(r.Checkout.GracePaths) != 4 {
		t.Errorf("got %+v", r)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), schema.Line+"\n") {
		t.Errorf("%v: begins with %.80s", err, text)
	}
	if !strings.Contains(string(text), "then: headgate check --config "+config.ShellWord(file)+"\n") {
		t.Errorf("the file does not name itself:\n%.200s", text)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(file), schema.File)); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"it answers 200 in ", "bypass the room:\n    /assets/ ", "headgate run --config "} {
		if !strings.Contains(said, want) {
			t.Errorf("did not say %q:\n%s", want, said)
		}
	}
	// It replaces nothing without --force.
	if _, err = run(t, &Command{File: file}); config.Faults(err) == nil {
		t.Errorf("a second time: got %v", err)
	}
	if now, _ := os.ReadFile(file); !bytes.Equal(now, text) {
		t.Error("the file has changed")
	}
	again := &Command{File: file, Force: true, Answers: Answers{Active: "300", New: "100"}}
	if _, err = run(t, again); err != nil {
		t.Error(err)
	}
	if c, err = config.Load(file); err != nil || c.Rooms[0].TotalActiveUsers != 300 {
		t.Errorf("with --force: %v", err)
	}
}

// A wrong answer is asked again, with what is wrong with it.
func TestInitAsks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	said, err := run(t, &Command{File: file, Ask: strings.NewReader(
		"\nshop.example\nORIGIN\nwww.Shop.example\nmany\n200\nauto\n100\n5\n10m\n")})
	if err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	for _, want := range []string{"is empty", `"shop.example" has no scheme`, `"many" is not a whole number`,
		"needs a total_active_users that is found", `"5" has no unit`} {
		if !strings.Contains(said, want) {
			t.Errorf("did not say %q:\n%s", want, said)
		}
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r := c.Rooms[0]
	if r.Name != "shop" || r.Host != "www.shop.example" || r.TotalActiveUsers != 200 ||
		r.NewUsersPerMinute != 100 || r.SessionDuration != 10*time.Minute {
		t.Errorf("got %+v", r)
	}
	if _, err := run(t, &Command{File: file + "2", Ask: strings.NewReader("ORIGIN\n")}); err == nil {
		t.Error("the input ended, and there was no error")
	}
}

// FuzzInit gives it pages and answers of any kind: what it writes is good, or it says what is wrong.
func FuzzInit(f *testing.F) {
	f.Add(home, "www.shop.example.com", "200", "5m")
	f.Add(`<a href="/a: b/x.js">`+"<img src='/#x.png'>", "[::1]", "auto", "'")
	f.Add(`<img src=/y/n.png><a href="//shop.example/api/x">`, "1.2.3.4", "0200", "1d")
	f.Fuzz(func(t *testing.T, page, host, active, session string) {
		c := Command{Answers: Answers{Origin: "http://shop.example", Host: host, Active: active, Session: session}}
		if err := c.answer(); err != nil {
			if config.Faults(err) == nil {
				t.Fatal(err)
			}
			return
		}
		origin, err := c.Answers.URL()
		if err != nil {
			t.Fatal(err)
		}
		site := Look(context.Background(), &slow{body: page}, origin, host)
		text := c.Answers.Text("headgate.yaml", site)
		if _, err := config.Parse("headgate.yaml", []byte(text)); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
	})
}
