package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// The page with all it loads is 100 KB at most, in few requests, and asks nobody else.
func TestThePageIsSmallAndWhole(t *testing.T) {
	all, err := readFiles()
	if err != nil {
		t.Fatal(err)
	}
	loads := regexp.MustCompile(`(?:src|href)="([^"#:]+)"|from '\./([^']+)'`)
	asks := regexp.MustCompile(`(?:src|href|fetch\()=?["'(]+https?:`)
	seen := map[string]bool{}
	var walk func(name string)
	walk = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		x, ok := all[name]
		if !ok {
			t.Fatalf("%s is loaded and not there", name)
		}
		for _, m := range loads.FindAllStringSubmatch(string(x.body), -1) {
			walk(m[1] + m[2])
		}
	}
	walk("index.html")
	bytes := 0
	for name, x := range all {
		bytes += len(x.body)
		if !seen[name] {
			t.Errorf("nothing loads %s", name)
		}
		for _, outside := range asks.FindAllString(string(x.body), -1) {
			t.Errorf("%s asks somebody else: %s", name, outside)
		}
	}
	t.Logf("%d bytes in %d requests", bytes, len(seen))
	if bytes >= 100_000 || len(seen) > 12 {
		t.Errorf("%d bytes in %d requests, want less than 100,000 in 12 at most", bytes, len(seen))
	}
	page := string(all["index.html"].body)
	if regexp.MustCompile(`<script(>| type="module">)|<style|\sstyle=|\son[a-z]+=`).MatchString(page) {
		t.Error("the page has something inline, which its policy forbids")
	}
}

func TestSessionsEnd(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := &sessions{all: map[string]*session{}}
	secret := s.add("tok", now)
	look := func(at time.Duration) bool {
		x, ok := s.find(secret, now.Add(at))
		return ok && x.token == "tok"
	}
	for at := time.Duration(0); at <= absoluteEnd; at += idleEnd {
		if !look(at) {
			t.Fatalf("over after %v, though it was used", at)
		}
	}
	if look(absoluteEnd + time.Second) {
		t.Error("it goes on after its absolute end")
	}
	secret = s.add("tok", now)
	if look(idleEnd + time.Second) {
		t.Error("it goes on though nobody used it")
	}
	secret = s.add("tok", now)
	s.end(secret)
	if look(0) {
		t.Error("it goes on after its end")
	}
	if _, ok := s.find("", now); ok {
		t.Error("no cookie is a session")
	}
	if s.all[secret] != nil {
		t.Error("what the cookie says is kept")
	}
}

func TestSessionsAreBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := &sessions{all: map[string]*session{}}
	first, second := s.add("a", now), s.add("b", now.Add(time.Second))
	for i := range mostSessions - 2 {
		s.add("c", now.Add(time.Duration(i+2)*time.Millisecond+time.Second))
	}
	s.find(first, now.Add(time.Minute))
	s.add("d", now.Add(time.Minute))
	if len(s.all) != mostSessions {
		t.Errorf("%d sessions, want %d", len(s.all), mostSessions)
	}
	if _, ok := s.find(first, now.Add(time.Minute)); !ok {
		t.Error("one in use had to go")
	}
	if _, ok := s.find(second, now.Add(time.Minute)); ok {
		t.Error("the one that was not used for longest is still there")
	}
}

func TestStreamsAreBounded(t *testing.T) {
	var s streams
	for range mostOfOne {
		if !s.open("a") {
			t.Fatal("refused too early")
		}
	}
	if s.open("a") {
		t.Error("one session has too many")
	}
	n := mostOfOne
	for i := 0; n <= mostStreams && s.open(fmt.Sprint(i)); i++ {
		n++
	}
	if n != mostStreams {
		t.Errorf("%d streams, want %d", n, mostStreams)
	}
	s.close("a")
	if !s.open("a") || len(s.of) > mostStreams {
		t.Error("the place of one that has ended is not free")
	}
}

func TestAttemptsAreOfAnAddress(t *testing.T) {
	var a attempts
	if err := a.open(); err != nil {
		t.Fatal(err)
	}
	for n := range signIns {
		if _, ok := a.take("192.0.2.1/32"); !ok {
			t.Fatalf("refused after %d", n)
		}
	}
	if retry, ok := a.take("192.0.2.1/32"); ok || retry <= 0 || retry > signInsIn {
		t.Errorf("not refused, or not told when: %v", retry)
	}
	if _, ok := a.take("192.0.2.2/32"); !ok {
		t.Error("another address is refused")
	}
	for peer, want := range map[string]string{
		"192.0.2.1:99": "192.0.2.1/32", "[::ffff:192.0.2.1]:9": "192.0.2.1/32", "@": "",
		"[2001:db8::1:2:3:4]:1": "2001:db8::/64", "[2001:db8::9]:1": "2001:db8::/64",
	} {
		if got := networkOf(peer); got != want {
			t.Errorf("%s is of %q, want %q", peer, got, want)
		}
	}
}

// roomAt is a room with so many inside, and totals.
func roomAt(active, waiting, admitted int64) *Room {
	r := &Room{Status: headgate.Status{Name: "shop", ActiveUsers: active, WaitingUsers: waiting,
		TotalActiveUsers: 100, NewUsersPerMinute: 60, SessionDuration: "1m0s", OriginUp: true}}
	r.Totals.Admitted = admitted
	return r
}

func TestRingKeepsTenMinutesAndAnHour(t *testing.T) {
	r := &ring{}
	const begin = 1_800_000_000
	for i := range int64(5000) {
		s := roomAt(i%100, i, i*2)
		s.Totals.Joined, s.Totals.Claimed = i*3, i
		s.Answers, s.Errors, s.Took = i*4, i, time.Duration(i*4)*20*time.Millisecond
		r.add(time.Unix(begin+i, 0), s)
	}
	points := r.seconds()
	if len(points) != fine || points[0].at != begin+5000-fine || points[fine-1].at != begin+4999 {
		t.Fatalf("%d points from %d to %d", len(points), points[0].at, points[len(points)-1].at)
	}
	if p := points[7]; p.answers != 4 || p.errors != 1 || p.took != 0.02 || p.waiting != p.at-begin {
		t.Errorf("a point is %+v", p)
	}
	hour := r.hour()
	if len(hour) != coarse-1 {
		t.Fatalf("%d stretches", len(hour))
	}
	for i, x := range hour {
		if x.came != 40 || x.admitted != 20 || x.at != hour[0].at+int64(i)*10 {
			t.Fatalf("stretch %d is %+v", i, x)
		}
	}
	r.add(time.Unix(begin+5000, 0), roomAt(1, 1, 3)) // the totals have begun anew
	if got := r.seconds()[fine-1]; got.answers != 0 || got.took != 0 {
		t.Errorf("a total that begins anew gives %+v", got)
	}
}

// past is an hour in which people come evenly and then in a rush.
func past(rush int64) []stretch {
	var all []stretch
	for i := range int64(359) {
		x := stretch{at: 1_800_000_000 + i*10, active: 60, came: 10, admitted: 10}
		if i >= 100 && i < 130 {
			x.came = rush
		}
		all = append(all, x)
	}
	return all
}

func TestWhatIfMoreFitPeopleWaitLess(t *testing.T) {
	q := &question{Room: "shop", Active: 1000, New: 600, Session: 60}
	a, err := play(t.Context(), past(60), roomAt(60, 0, 0), q)
	if err != nil {
		t.Fatal(err)
	}
	if a.Now.WaitMax < 60 || a.Other.WaitMax > 1 || a.Other.PeakActive <= a.Now.PeakActive {
		t.Errorf("now %v s and %d inside, with ten times as much %v s and %d",
			a.Now.WaitMax, a.Now.PeakActive, a.Other.WaitMax, a.Other.PeakActive)
	}
	if a.Now.InAll < 3600 || a.Other.InAll > 60 || a.Other.Left > 0 {
		t.Errorf("in all %v s now and %v s otherwise, %d left", a.Now.InAll, a.Other.InAll, a.Other.Left)
	}
	if a.Now.PeakActive > 100 || len(a.Now.Active) != 359 || len(a.Other.Waiting) != 359 {
		t.Errorf("%d inside at most, %d and %d points",
			a.Now.PeakActive, len(a.Now.Active), len(a.Other.Waiting))
	}
	if want := 359*10 + 30*50 + 60; a.Now.Visitors < int64(want-1) || a.Now.Visitors > int64(want) {
		t.Errorf("%d visitors were played, want %d", a.Now.Visitors, want)
	}
}

// With one slot few are let in, after short waits: who still waits at the end counts too.
func TestWhatIfCountsWhoIsNotLetIn(t *testing.T) {
	q := &question{Room: "shop", Active: 1, New: 600, Session: 60}
	a, err := play(t.Context(), past(60), roomAt(60, 0, 0), q)
	if err != nil {
		t.Fatal(err)
	}
	if a.Other.InAll < 2*a.Now.InAll || a.Other.Left < 3000 {
		t.Errorf("%v s waited instead of %v, %d still wait", a.Other.InAll, a.Now.InAll, a.Other.Left)
	}
}

func TestWhatIfIsBounded(t *testing.T) {
	q := &question{Room: "shop", Active: 1, New: 1, Session: 60}
	for name, all := range map[string][]stretch{"nothing_seen": {{at: 10}}, "too_many": past(1e6)} {
		_, err := play(t.Context(), all, roomAt(1, 0, 0), q)
		if p, ok := errors.AsType[*refusal](err); !ok || p.Code != name {
			t.Errorf("want %s, got %v", name, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := play(ctx, past(600), roomAt(1, 0, 0), q); !errors.Is(err, context.Canceled) {
		t.Errorf("a run whose page has gone: %v", err)
	}
	for field, q := range map[string]question{
		"total_active_users":   {New: 1, Session: 1},
		"new_users_per_minute": {Active: 1, New: -1, Session: 1},
		"session_seconds":      {Active: 1, New: 1, Session: 1 << 40},
		"":                     {Active: 1, New: 1, Session: 1},
	} {
		if got, _ := q.fault(); got != field {
			t.Errorf("%+v: fault at %q, want %q", q, got, field)
		}
	}
}

// A hundred rooms are one event of some 40 KB, cut to what may be read.
func TestOneEventHasAllRoomsThatMayBeRead(t *testing.T) {
	var rooms []Room
	for i := range 100 {
		r := roomAt(int64(i), 0, 0)
		r.Name, r.Host = fmt.Sprintf("room-%d", i), "shop.example.com"
		rooms = append(rooms, *r)
	}
	d := &Dashboard{cfg: Config{Rooms: func() []Room { return rooms }}, rings: map[string]*ring{},
		moved: make(chan struct{}), now: &moment{}}
	_, moved := d.newest()
	d.read(time.Unix(1_800_000_000, 0))
	select {
	case <-moved:
	default:
		t.Fatal("nobody is woken")
	}
	m, _ := d.newest()
	b := m.event(nil, func(string) bool { return true })
	if len(b) > 50_000 {
		t.Errorf("%d bytes a second", len(b))
	}
	one := m.event(nil, func(name string) bool { return name == "room-7" })
	text, ok := strings.CutPrefix(string(one), "data: ")
	var got struct {
		At    int64
		Rooms []shown
	}
	if err := json.Unmarshal([]byte(text), &got); !ok || err != nil {
		t.Fatalf("%q: %v", one, err)
	}
	if len(got.Rooms) != 1 || got.Rooms[0].Name != "room-7" || got.Rooms[0].Active != 7 {
		t.Errorf("got %+v", got)
	}
	d.end()
	if m, _ := d.newest(); m != nil {
		t.Error("streams go on after the end")
	}
}

func BenchmarkASecondOf100Rooms(b *testing.B) {
	var rooms []Room
	for i := range 100 {
		r := roomAt(int64(i), 0, 0)
		r.Name = fmt.Sprintf("room-%d", i)
		rooms = append(rooms, *r)
	}
	d := &Dashboard{cfg: Config{Rooms: func() []Room { return rooms }}, rings: map[string]*ring{},
		moved: make(chan struct{}), now: &moment{}}
	now := time.Unix(1_800_000_000, 0)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		d.read(now)
	}
}
