package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/status"
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
	r := &Room{Room: status.Room{Name: "shop", ActiveUsers: active, WaitingUsers: waiting,
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
		x := stretch{at: 1_800_000_000 + i*10, hadActive: 60, active: 60, came: 10, admitted: 10}
		if i >= 100 && i < 130 {
			x.came = rush
		}
		all = append(all, x)
	}
	return all
}

func TestWhatIfMoreFitPeopleWaitLess(t *testing.T) {
	if testing.Short() {
		return // length, and nothing that the race detector could find: make all plays it
	}
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

// Who came within the first seconds that are known, and is still there at their end, comes once.
func TestWhatIfPlaysNobodyTwice(t *testing.T) {
	r := &ring{}
	const begin = 1_800_000_000
	for i := range int64(60) {
		n := min(400, 40*i)
		s := roomAt(min(n, 100), max(0, n-100), min(n, 100))
		s.Totals.Joined = max(0, n-100)
		r.add(time.Unix(begin+i, 0), s)
	}
	q := &question{Room: "shop", Active: 200, New: 600, Session: 60}
	a, err := play(t.Context(), r.hour(), &r.last, q)
	if err != nil {
		t.Fatal(err)
	}
	if a.Now.Visitors < 399 || a.Now.Visitors > 400 || a.Seen.Visitors != 400 {
		t.Errorf("%d visitors were played, %d seen, want 400", a.Now.Visitors, a.Seen.Visitors)
	}
}

// With one slot few are let in, after short waits: who still waits at the end counts too.
func TestWhatIfCountsWhoIsNotLetIn(t *testing.T) {
	if testing.Short() {
		return // length, and nothing that the race detector could find: make all plays it
	}
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

// busyRooms is a hundred rooms, as boards of a busy shop are called.
func busyRooms() []Room {
	var rooms []Room
	for i := range 100 {
		r := roomAt(int64(i)+900, 0, 0)
		r.Name, r.Host = fmt.Sprintf("ticket-shop-%d", i), fmt.Sprintf("tickets-%d.shop.example.com", i)
		r.Path, r.Room.Status, r.MaxWaitSeconds, r.Method = "/", "not_queueing", -1, "fifo"
		rooms = append(rooms, *r)
	}
	return rooms
}

func boardOf(rooms func() []Room) *Dashboard {
	return &Dashboard{cfg: Config{Rooms: rooms}, rings: map[string]*ring{}, moved: make(chan struct{}),
		now: &moment{}}
}

func everything(string) bool { return true }

// A brought is an event, as the page reads it.
type brought struct {
	At    int64
	All   bool
	Rooms []map[string]any
	Gone  []string
}

func readEvent(t *testing.T, b []byte) (x brought) {
	t.Helper()
	text, ok := strings.CutPrefix(string(b), "data: ")
	if err := json.Unmarshal([]byte(text), &x); !ok || err != nil || !strings.HasSuffix(text, "}\n\n") {
		t.Fatalf("%q: %v", b, err)
	}
	return x
}

// Of a hundred rooms a page is sent what the list shows and has changed: nearly nothing at rest.
func TestTheStreamOfAHundredRoomsIsSmall(t *testing.T) {
	rooms := busyRooms()
	d := boardOf(func() []Room { return rooms })
	at := time.Unix(1_800_000_000, 0)
	v, one := &viewer{}, &viewer{one: "ticket-shop-7"}
	second := func() (all, single int) {
		at = at.Add(time.Second)
		d.read(at)
		m, _ := d.newest()
		return len(v.event(nil, m, everything)), len(one.event(nil, m, everything))
	}
	first, _ := second()
	rest, single := second()
	whole := 0
	m, _ := d.newest()
	for i := range m.shown {
		whole += len(encode(&m.shown[i]))
	}
	busy, most := 0, 0
	for n := range 60 { // everything moves in every room
		for i := range rooms {
			r := &rooms[i]
			r.ActiveUsers, r.WaitingUsers = int64(9000+37*n+i), int64(100_000+n*i)
			r.NewUsersLastMinute, r.MaxWaitSeconds = int64(400+n+i%7), float64(3000-9*n+i)
			r.Answers, r.Took = r.Answers+90, r.Took+90*time.Duration(20+(n+i)%9)*time.Millisecond
			r.Room.Status = "queueing"
		}
		got, _ := second()
		busy, most = busy+got, max(most, got)
	}
	t.Logf("bytes a second: %d with all of all rooms, %d at first, %d at rest, %d in a rush (%d at most), "+
		"%d of one room", whole, first, rest, busy/60, most, single)
	if rest > 100 || busy/60 > 10_000 || first > 50_000 || single > 700 {
		t.Error("more than a page needs")
	}
}

// Whoever puts together what was sent has what a new page gets, whatever happens to the rooms.
func TestChangesAddUpToTheWhole(t *testing.T) {
	all := busyRooms()[:20]
	rooms := all
	d := boardOf(func() []Room { return rooms })
	rng := rand.New(rand.NewPCG(10, 44))
	hidden := map[string]bool{}
	may := func(name string) bool { return !hidden[name] }
	v, page := &viewer{}, map[string]map[string]any{}
	take := func(b []byte) {
		x := readEvent(t, b)
		if x.All {
			page = map[string]map[string]any{}
		}
		for _, r := range x.Rooms {
			name := r["name"].(string)
			if page[name] == nil {
				page[name] = map[string]any{}
			}
			maps.Copy(page[name], r)
		}
		for _, name := range x.Gone {
			if page[name] == nil {
				t.Errorf("%s is gone, and was never there", name)
			}
			delete(page, name)
		}
	}
	wholes := 0
	for n := range 500 {
		rooms = slices.Clone(all)
		for i := range all {
			r := &all[i]
			switch rng.IntN(6) {
			case 0:
				r.ActiveUsers, r.WaitingUsers = rng.Int64N(9), rng.Int64N(3)
			case 1:
				r.Room.Event = []*status.Event{nil, {Name: "sale"}}[rng.IntN(2)]
			case 2:
				r.OriginUp, r.Closed, r.Record.WriteFailing = rng.IntN(
					2,
				) > 0, rng.IntN(
					2,
				) > 0, rng.Float64()*10
			}
		}
		if rng.IntN(3) == 0 {
			at := rng.IntN(len(rooms))
			rooms = slices.Delete(slices.Clone(all), at, at+1)
		}
		if name := all[rng.IntN(len(all))].Name; rng.IntN(5) == 0 {
			hidden[name] = !hidden[name]
		}
		d.read(time.Unix(1_800_000_000+int64(n), 0))
		if rng.IntN(10) == 0 {
			continue // the page is slow
		}
		m, _ := d.newest()
		b := v.event(nil, m, may)
		if readEvent(t, b).All {
			wholes++
		}
		take(b)
		fresh := readEvent(t, (&viewer{}).event(nil, m, may))
		want := map[string]map[string]any{}
		for _, r := range fresh.Rooms {
			want[r["name"].(string)] = r
		}
		if diff := cmp.Diff(want, page); diff != "" {
			t.Fatalf("second %d: %s", n, diff)
		}
	}
	if wholes < 20 || wholes > 100 {
		t.Errorf("all was sent %d times of 450", wholes)
	}
}

// A stream of one room has that one, whole, and nothing of others.
func TestAStreamOfOneRoom(t *testing.T) {
	d := boardOf(busyRooms)
	_, moved := d.newest()
	d.read(time.Unix(1_800_000_000, 0))
	select {
	case <-moved:
	default:
		t.Fatal("nobody is woken")
	}
	m, _ := d.newest()
	v := &viewer{one: "ticket-shop-7"}
	for range 2 {
		got := readEvent(t, v.event(nil, m, everything))
		if len(got.Rooms) != 1 || !got.All || got.Rooms[0]["name"] != "ticket-shop-7" ||
			got.Rooms[0]["active"] != 907.0 || got.Rooms[0]["session"] != "1m0s" {
			t.Errorf("got %+v", got)
		}
	}
	if got := readEvent(t, v.event(nil, m, func(string) bool { return false })); len(got.Rooms) > 0 {
		t.Errorf("who may not read it gets %+v", got)
	}
	d.end()
	if m, _ := d.newest(); m != nil {
		t.Error("streams go on after the end")
	}
}

func BenchmarkASecondOf100Rooms(b *testing.B) {
	rooms := busyRooms()
	d := boardOf(func() []Room { return rooms })
	now := time.Unix(1_800_000_000, 0)
	v := &viewer{}
	var text []byte
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		now = now.Add(time.Second)
		for i := range rooms {
			rooms[i].ActiveUsers = int64(n)
		}
		d.read(now)
		m, _ := d.newest()
		text = v.event(text[:0], m, everything)
	}
}
