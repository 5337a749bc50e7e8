package siege

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// The load of the attackers, which share two processors with headgate, the origin and the people.
const (
	perAttacker = 100   // requests a second: a hundred times what a person's page sends
	mostRate    = 2000  // requests a second of all attackers together
	mostConns   = 400   // connections that are held
	mostSent    = 80000 // requests or connections of one scenario
	senders     = 64
)

// An attack is what the attackers of one scenario do to a target.
type attack struct {
	url       string
	attackers int
	oneBlock  bool // all addresses are of a single /24
	at        []*http.Transport
	sent      atomic.Int64
	ready     func() // the people may come; may be called more than once
	before    int64  // requests or connections that come before them
	burst     int64  // of these, sent as fast as they go
	most      int64  // requests in all

	solvers int      // processors on which clients solve challenges
	solved  int      // challenges that they have solved
	issued  int      // challenges that they got
	codes   []string // invitations of the attackers
}

func (a *attack) address(k int) net.IP {
	if a.oneBlock {
		return net.IPv4(127, 32, 0, byte(1+k))
	}
	return net.IPv4(127, 32, byte(k), 1)
}

// network names the network of attacker k: a /24.
func (a *attack) network(k int) int {
	if a.oneBlock {
		return 0
	}
	return k
}

func (a *attack) name(k int, jar string) string { return fmt.Sprintf("a%d/%s", a.network(k), jar) }

// count notes one more request or connection and reports its number, from 0.
func (a *attack) count() int64 {
	n := a.sent.Add(1)
	if n >= a.before {
		a.ready()
	}
	return n - 1
}

// flood sends until ctx is done, at the attackers' rate: request i is that of attacker i of all.
func (a *attack) flood(ctx context.Context, send func(ctx context.Context, k int, i int64)) {
	rate := min(a.attackers*perAttacker, mostRate)
	start := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				due := start.Add(time.Duration(max(0, i-a.burst)) * time.Second / time.Duration(rate))
				if i >= a.most || !until(ctx, due) {
					return
				}
				send(ctx, int(i)%a.attackers, i)
				a.count()
			}
		})
	}
	wg.Wait()
	<-ctx.Done()
}

func until(ctx context.Context, at time.Time) bool {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// do sends one request of attacker k and returns the cookies of the answer, and whether it is
// that of a visitor who waits.
func (a *attack) do(ctx context.Context, k int, h http.Header) (cookies []string, waits bool) {
	resp, err := a.at[k].RoundTrip(get(ctx, a.url, h))
	if err != nil {
		return nil, false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	resp.Body.Close()
	return resp.Header["Set-Cookie"], resp.Header.Get("Headgate-State") != ""
}

// cookieless is a visitor's first request, again and again: that of a browser, of an app and of an
// old browser.
func cookieless(ctx context.Context, a *attack) {
	a.flood(ctx, func(ctx context.Context, k int, i int64) {
		h := navigation(a.name(k, fmt.Sprint(i)), "")
		switch i / int64(a.attackers) % 3 {
		case 1:
			h["Accept"] = []string{"application/json"}
			fallthrough
		case 2:
			maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.HasPrefix(name, "Sec-") })
		}
		a.do(ctx, k, h)
	})
}

// fresh is a new cookie for each two requests: it comes back once, and so is confirmed.
func fresh(ctx context.Context, a *attack) {
	a.flood(ctx, func(ctx context.Context, k int, i int64) {
		var j crowd.Jar
		name := a.name(k, fmt.Sprint(i))
		got, _ := a.do(ctx, k, navigation(name, ""))
		j.Keep(got)
		a.do(ctx, k, navigation(name, j.String()))
	})
}

// copied is one jar that all attackers use. Whoever is inside with it lets all the others in.
func copied(ctx context.Context, a *attack) {
	var j crowd.Jar
	var mu sync.Mutex
	a.flood(ctx, func(ctx context.Context, k int, _ int64) {
		mu.Lock()
		cookie := j.String()
		mu.Unlock()
		got, _ := a.do(ctx, k, navigation(a.name(k, "copy"), cookie))
		mu.Lock()
		j.Keep(got)
		mu.Unlock()
	})
}

// subresources are pictures, and pages that are loaded before anybody asks for them.
func subresources(ctx context.Context, a *attack) {
	a.flood(ctx, func(ctx context.Context, k int, i int64) {
		h := navigation(a.name(k, fmt.Sprint(i)), "")
		if i/int64(a.attackers)%2 == 0 {
			h["Sec-Purpose"] = []string{"prefetch"}
		} else {
			h["Accept"] = []string{"image/avif,image/webp,*/*;q=0.8"}
			h["Sec-Fetch-Mode"], h["Sec-Fetch-Dest"] = []string{"no-cors"}, []string{"image"}
		}
		a.do(ctx, k, h)
	})
}

// forged are cookies that this room has not made: noise, a real one with one letter changed, many
// in one header, and noise with a poll, which a visitor with a cookie sends.
func forged(ctx context.Context, a *attack) {
	var real crowd.Jar
	got, _ := a.do(ctx, 0, navigation(a.name(0, "real"), ""))
	real.Keep(got)
	cookie := real.String()
	a.flood(ctx, func(ctx context.Context, k int, i int64) {
		name, value, _ := strings.Cut(cookie, "=")
		var poll []string
		noise := make([]byte, 130)
		_, _ = rand.Read(noise)
		text := base64.RawURLEncoding.EncodeToString(noise)
		switch i / int64(a.attackers) % 4 {
		case 0:
			value = "AQ" + text
		case 1:
			if at := int(i) % max(1, len(value)); value != "" {
				value = value[:at] + string("AB"[value[at]&1]) + value[at+1:]
			}
		case 2:
			value = strings.Repeat("AQ"+text+"; "+name+"=", 20) + text
		default:
			value, poll = text, []string{"1"}
		}
		h := navigation(a.name(k, fmt.Sprint(i)), name+"="+value)
		h["Headgate-Poll"] = poll
		a.do(ctx, k, h)
	})
}

// hold lets each attacker do something that lasts on 50 connections, again when it has ended.
func (a *attack) hold(ctx context.Context, last func(ctx context.Context, k, i int)) {
	conns := min(50*a.attackers, mostConns)
	a.before = int64(conns)
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			for until(ctx, time.Now().Add(100*time.Millisecond)) && a.count() < a.most {
				last(ctx, i%a.attackers, i)
			}
		})
	}
	wg.Wait()
}

// A drip is a body of a byte each half second.
type drip struct{ ctx context.Context }

func (d drip) Read(p []byte) (int, error) {
	if !until(d.ctx, time.Now().Add(500*time.Millisecond)) {
		return 0, d.ctx.Err()
	}
	return copy(p, "x"), nil
}

// slow are forms with such bodies: half of them to the page, half to a path that is excluded from
// the room.
func slow(ctx context.Context, a *attack) {
	a.hold(ctx, func(ctx context.Context, k, i int) {
		url := a.url
		if i/a.attackers%2 == 1 {
			url += "robots.txt"
		}
		r := get(ctx, url, navigation(a.name(k, fmt.Sprintf("slow%d", i)), ""))
		r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(drip{ctx}), 100_000
		if resp, err := a.at[k].RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

// idle are connections on which nothing comes, or half a request.
func idle(ctx context.Context, a *attack) {
	a.hold(ctx, func(ctx context.Context, k, i int) {
		c, err := a.at[k].DialContext(ctx, "tcp", strings.Trim(a.url, "htp:/"))
		if err != nil {
			return
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		_, _ = io.WriteString(c, []string{"", "GET / HTTP/1.1\r\nHost: x\r\nX: "}[i%2])
		_, _ = io.Copy(io.Discard, c)
	})
}

// jarsPerAttacker times the attackers, and at most mostJars, keep cookies as browsers do.
const (
	jarsPerAttacker = 1000
	mostJars        = 3000
)

// jars are browsers without a person: each waits as told, comes in when called, stays as long as
// people do and gives no slot back.
func jars(ctx context.Context, a *attack) {
	a.browse(ctx, crowd.Config{N: min(jarsPerAttacker*a.attackers, mostJars), Arrive: 20 * time.Second,
		SessionMin: 2 * time.Second, SessionMax: 5 * time.Second})
}

// clients are 1,000 browsers without a person, which come as the people do.
func clients(ctx context.Context, a *attack) {
	c := crowd.Config{N: 1000, Arrive: 20 * time.Second, Solvers: a.solvers, Codes: a.codes,
		SessionMin: time.Second, SessionMax: 2 * time.Second}
	if c.Solvers == 0 {
		c.Solvers = -1
	}
	a.ready()
	a.browse(ctx, c)
}

// hoard are as many browsers as the room has slots. They come before the people, while nobody
// waits, and never go.
func hoard(ctx context.Context, a *attack) {
	a.browse(ctx, crowd.Config{N: 200, Arrive: time.Second, SessionMin: 5 * time.Minute,
		SessionMax: 5 * time.Minute, ThinkMin: 4 * time.Second, ThinkMax: 6 * time.Second})
}

// absent are 700 visitors. Those who are let in go. Those who wait poll, are called, and never come
// in: each call keeps a slot empty until it lapses, and the next poll may get the next call.
func absent(ctx context.Context, a *attack) {
	const tickets = 700
	a.before = tickets
	var wg sync.WaitGroup
	for i := range tickets {
		wg.Go(func() {
			var j crowd.Jar
			h := navigation(a.name(i%a.attackers, fmt.Sprint(i)), "")
			for waits := true; waits && until(ctx, time.Now().Add(time.Second)); {
				var got []string
				got, waits = a.do(ctx, i%a.attackers, h)
				j.Keep(got)
				h = http.Header{"Accept": {"application/json"}, "Headgate-Poll": {"1"},
					"Cookie": {j.String()}}
				a.count()
			}
		})
	}
	wg.Wait()
}

// browse sends a crowd from the attackers' addresses.
func (a *attack) browse(ctx context.Context, c crowd.Config) {
	number := func(id string) int {
		n, _ := strconv.Atoi(id)
		return n % a.attackers
	}
	b := newBrowsers(func(id string) string {
		if n := len(a.codes); n > 0 { // clients with the same invitation have one place
			i, _ := strconv.Atoi(id)
			return a.name(number(id), fmt.Sprint("code", (i-1)%n))
		}
		return a.name(number(id), id)
	},
		func(id int) net.IP { return a.address(id % a.attackers) })
	a.before = min(a.before, int64(c.N))
	c.URL, c.Seed, c.Transport, c.Duration = a.url, 2, b, 2*time.Minute
	r, err := crowd.Run(ctx, c, func(e crowd.Event) {
		if e.What == crowd.EventPolled {
			a.count()
		}
	})
	if err != nil {
		panic(err) // the configuration is ours
	}
	s := r.Summary()
	a.solved, a.issued = s.Solutions, s.Challenges
	<-ctx.Done()
}
