package demo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/hint"
)

// A front is the entrance for people with a browser. It forwards everything to the room, and reads
// the answers to show people where they are in the line. While the room is down it closes the
// connection, as the room's own port would.
type front struct {
	*site
	URL string // to open in a browser

	mu     sync.Mutex
	guests map[string]guest // by ticket
}

// A guest is a person in the line.
type guest struct {
	Position int64
	Expected time.Duration // -1: unknown
	seen     time.Time
}

// openFront listens on addr. If addr is taken and another is true, it listens on a free port.
func openFront(addr string, another bool, room http.RoundTripper) (*front, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil && another {
		host, _, _ := net.SplitHostPort(addr)
		ln, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, &hint.Error{Text: "listen " + addr, Err: err,
			Do: "another program may use it: set --listen to a free address, or leave it out"}
	}
	f := &front{URL: "http://" + dialable(ln.Addr()) + "/", guests: map[string]guest{}}
	f.site = serve(ln, &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: p.In.Host}) // the host, from the room's view
			p.Out.Host = p.In.Host
			p.SetXForwarded()
			p.Out.Header.Del(crowd.VisitorHeader) // browsers cannot pretend to be simulated visitors
		},
		Transport:      room,
		ModifyResponse: f.read,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:       log.New(io.Discard, "", 0),
	})
	return f, nil
}

// dialable returns the address with a host that a browser on this machine can open.
func dialable(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok && t.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", t.Port)
	}
	return a.String()
}

// maxAnswer limits what is read of an answer. The room's answers are below 4 KB.
const maxAnswer = 64 << 10

// read records where a person is in the line. It does not change the answer.
func (f *front) read(r *http.Response) error {
	isJSON := strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
	if r.Header.Get("Headgate-State") == "" || !isJSON {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return err
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), r.Body), r.Body}
	var body struct {
		Headgate struct {
			State    string   `json:"state"`
			Ticket   string   `json:"ticket"`
			Position int64    `json:"position"`
			ETA      *float64 `json:"eta_seconds"`
		} `json:"headgate"`
	}
	if json.Unmarshal(text, &body) != nil || body.Headgate.Ticket == "" {
		return nil
	}
	g := guest{Position: body.Headgate.Position, Expected: -1, seen: time.Now()}
	if s := body.Headgate.ETA; s != nil {
		g.Expected = time.Duration(*s * float64(time.Second))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.guests) < 1000 || f.guests[body.Headgate.Ticket].Position > 0 {
		f.guests[body.Headgate.Ticket] = g
	}
	if body.Headgate.State == "called" || g.Position == 0 {
		delete(f.guests, body.Headgate.Ticket)
	}
	return nil
}

// inLine lists the people in the line, the next one first. It drops people whose last poll is older
// than the longest polling interval: they have closed the page.
func (f *front) inLine(now time.Time) []guest {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []guest
	for ticket, g := range f.guests {
		if now.Sub(g.seen) > 15*time.Second {
			delete(f.guests, ticket)
			continue
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b guest) int { return cmp.Compare(a.Position, b.Position) })
	return all
}
