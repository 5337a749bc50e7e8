package headgate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/tests/virtual"
)

// memberRoom is a room that knows people by a header.
func memberRoom(users int64, required bool) RoomConfig {
	return RoomConfig{
		Name: "shop", TotalActiveUsers: users, NewUsersPerMinute: 600, SessionDuration: time.Minute,
		PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond,
		Identity: Identity{Required: required, SignIn: "/login?next={url}",
			Of: func(r *http.Request) (string, string, bool) {
				return r.Header.Get("X-Member"), r.Header.Get("X-Group"), true
			}},
	}
}

// device returns a browser in which a person has signed in.
func (g *gate) device(person string) *visitor {
	v := g.visitor()
	v.signIn(person)
	return v
}

func (v *visitor) signIn(person string) { v.extra = http.Header{"X-Member": {person}} }

// polls is poll with the identity of the device.
func (v *visitor) polls() (p moving2) {
	v.g.t.Helper()
	old := v.extra
	v.extra = http.Header{PollHeader: {"1"}, "X-Member": old["X-Member"], "X-Group": old["X-Group"]}
	v.accept = "application/json"
	w := v.do("GET", "/")
	v.extra, v.accept = old, "text/html"
	decodeHeadgate(v.g.t, w, &p)
	return p
}

type moving2 struct {
	State    State   `json:"state"`
	Position int64   `json:"position"`
	Waiting  int64   `json:"waiting"`
	Ticket   string  `json:"ticket"`
	MoveURL  string  `json:"move_url"`
	SignIn   string  `json:"sign_in_url"`
	After    float64 `json:"poll_after_seconds"`
}

// comesIn polls and enters, within d.
func (v *visitor) comesIn(d time.Duration) bool {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if v.in() {
			return true
		}
		time.Sleep(time.Duration(v.polls().After * float64(time.Second)))
	}
	return false
}

func TestAPersonHasOnePlace(t *testing.T) { //nolint:funlen // a list of cases
	bubble(t, "the same on each device, in the line and inside", func(t *testing.T) {
		g := openGate(t, memberRoom(1, false))
		first := g.visitor()
		if !first.in() {
			t.Fatal("the room is empty")
		}
		desk, other, phone := g.device("ada"), g.device("bob"), g.device("ada")
		desk.in()
		other.in()
		phone.in()
		was := desk.polls()
		if p := phone.polls(); p.Ticket != was.Ticket || p.Ticket == "" || p.Position != 1 || p.Waiting != 2 {
			t.Fatalf("the phone has %+v, the desktop %+v", p, was)
		}
		if was.MoveURL != "" {
			t.Error("a place that is on each device can be moved")
		}
		first.revoked()
		if !phone.comesIn(10*time.Second) || !desk.comesIn(10*time.Second) {
			t.Fatal("a device is not in")
		}
		if a, b := phone.enters(), desk.enters(); a != b || a == "" {
			t.Errorf("two sessions: %q and %q", a, b)
		}
		late := g.device("ada")
		if s := late.enters(); s != desk.enters() {
			t.Errorf("a third device has the session %q", s)
		}
		time.Sleep(reported)
		if s := g.room.Status(); s.ActiveUsers != 1 || s.NewUsersLastMinute != 2 {
			t.Errorf("%d inside of 1, %d new users of 2", s.ActiveUsers, s.NewUsersLastMinute)
		}
		if other.in() {
			t.Error("a second person in a room for one")
		}
	})
	bubble(t, "an empty room lets a burst in at once", func(t *testing.T) {
		cfg := memberRoom(100, true)
		cfg.NewUsersPerMinute = 60
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		g.room.SetQueueAll(true)
		first := g.device("first")
		first.in()
		g.room.SetQueueAll(false)
		if !first.comesIn(10 * time.Second) { // the line has just called somebody, and calls one in a second
			t.Fatal("not in")
		}
		began := time.Now()
		for i := range 50 {
			if !g.device(fmt.Sprint("person ", i)).in() {
				t.Fatalf("person %d waits in an empty room", i)
			}
		}
		if d := time.Since(began); d > time.Second { // of virtual time: two writes for each
			t.Errorf("50 people wait for %v in all", d)
		}
	})
	bubble(t, "when all devices come in the same moment", func(t *testing.T) {
		g := openGate(t, memberRoom(100, true))
		time.Sleep(5 * time.Second)
		var wg sync.WaitGroup
		devices := make([]*visitor, 20)
		for i := range devices {
			devices[i] = g.device("ada")
			wg.Go(func() { devices[i].in() })
		}
		wg.Wait()
		sessions := map[string]bool{}
		for _, v := range devices {
			if !v.comesIn(10 * time.Second) {
				t.Fatal("a device is not in")
			}
			sessions[v.enters()] = true
		}
		time.Sleep(reported)
		if s := g.room.Status(); len(sessions) != 1 || s.ActiveUsers != 1 || s.NewUsersLastMinute != 1 {
			t.Errorf("sessions %v, %d inside, %d new users", sessions, s.ActiveUsers, s.NewUsersLastMinute)
		}
	})
	bubble(t, "and the cookie of one is worth nothing to another", func(t *testing.T) {
		g := openGate(t, memberRoom(1, true))
		time.Sleep(5 * time.Second)
		ada := g.device("ada")
		if !ada.in() {
			t.Fatal("not in")
		}
		thief := *ada
		thief.signIn("eve")
		if thief.in() || thief.polls().Position != 1 {
			t.Error("in with the pass of somebody else")
		}
		out := *ada // her proof is over, as that of many sign-ins is after minutes
		out.extra = nil
		if !out.in() {
			t.Error("a visitor inside is asked to sign in again")
		}
	})
	bubble(t, "a session that is over is over on each device", func(t *testing.T) {
		g := openGate(t, memberRoom(1, true))
		time.Sleep(5 * time.Second)
		desk, phone := g.device("ada"), g.device("ada")
		if !desk.in() || !phone.in() {
			t.Fatal("not in")
		}
		stay := desk.enters()
		time.Sleep(2 * time.Minute)
		bob := g.device("bob")
		if !bob.in() {
			t.Fatal("the slot did not come back")
		}
		if phone.in() || desk.in() || phone.polls().Ticket != desk.polls().Ticket {
			t.Error("the session goes on, or has become two places")
		}
		bob.revoked()
		if !desk.comesIn(10*time.Second) || desk.enters() == stay {
			t.Error("no new session")
		}
	})
}

// However many devices a person has, a draw has one ticket of it.
func TestADrawCountsEachPersonOnce(t *testing.T) {
	const devices, others = 20, 12
	crowd := func(t *testing.T, g *gate) (ada, all []*visitor) {
		for range devices {
			ada = append(ada, g.device("ada"))
		}
		all = slices.Clone(ada)
		for i := range others {
			all = append(all, g.device(fmt.Sprint("person ", i)))
		}
		for _, v := range all {
			if v.in() {
				t.Fatal("nobody may come in yet")
			}
		}
		for _, v := range all { // the cookie has come back
			if p := v.polls(); p.Waiting != others+1 {
				t.Fatalf("%d wait, want %d people", p.Waiting, others+1)
			}
		}
		return ada, all
	}
	enter := func(t *testing.T, g *gate, ada, all []*visitor) {
		stays := map[string]int{}
		for i, v := range all {
			if !v.comesIn(time.Minute) {
				t.Fatalf("device %d does not come in", i)
			}
			stays[v.enters()]++
		}
		if len(stays) != others+1 || stays[ada[0].enters()] != devices {
			t.Errorf("%d sessions of %d people: %v", len(stays), others+1, stays)
		}
	}
	judge := func(t *testing.T, g *gate) {
		s := g.room.Status()
		if s.ActiveUsers != others+1 || s.Totals.Claimed != others+1 || s.WaitingUsers != 0 {
			t.Errorf("%d inside, %d claims, %d wait", s.ActiveUsers, s.Totals.Claimed, s.WaitingUsers)
		}
	}
	bubble(t, "in a shuffle", func(t *testing.T) {
		cfg := memberRoom(100, true)
		g := openGate(t, cfg)
		g.sale(false, false)
		g.sale(true, false)
		ada, all := crowd(t, g)
		g.room.SetQueueAll(true) // to see the order of the draw before anybody is called
		g.sale(true, true)
		time.Sleep(time.Second)
		was := ada[0].polls()
		for _, v := range ada {
			if p := v.polls(); p.Ticket != was.Ticket || p.Position != was.Position || p.Position == 0 {
				t.Errorf("after the draw one device has %+v, another %+v", was, p)
			}
		}
		g.room.SetQueueAll(false)
		enter(t, g, ada, all)
		time.Sleep(reported)
		judge(t, g)
	})
	bubble(t, "with method random", func(t *testing.T) {
		cfg := memberRoom(100, true)
		cfg.Method = MethodRandom
		g := openGate(t, cfg)
		g.room.SetQueueAll(true)
		ada, all := crowd(t, g)
		g.room.SetQueueAll(false)
		enter(t, g, ada, all)
		time.Sleep(reported)
		judge(t, g)
	})
}

func TestAPersonStartsAnewAfterLeaving(t *testing.T) {
	bubble(t, "with a place at the end, on all devices", func(t *testing.T) {
		g := openGate(t, memberRoom(1, true))
		g.room.SetQueueAll(true)
		desk, phone := g.device("ada"), g.device("ada")
		desk.in()
		phone.in()
		g.device("bob").in()
		was := phone.polls()
		desk.do("POST", "/.headgate/leave")
		if p := desk.polls(); p.State != StateLeft {
			t.Errorf("the device that left is told %+v", p)
		}
		p := phone.polls()
		if p.Ticket == was.Ticket || p.Position != 2 || p.Waiting != 2 {
			t.Errorf("after %+v was given up the phone has %+v", was, p)
		}
		if desk.in(); desk.polls().Ticket != p.Ticket {
			t.Errorf("the device that left has %+v, the phone %+v", desk.polls(), p)
		}
	})
	bubble(t, "and when the place was lost in silence", func(t *testing.T) {
		cfg := memberRoom(1, true)
		cfg.Hold = time.Minute
		g := openGate(t, cfg)
		g.room.SetQueueAll(true)
		desk, phone := g.device("ada"), g.device("ada")
		desk.in()
		was := desk.polls()
		time.Sleep(time.Hour)
		g.device("bob").in()
		phone.in()
		p := phone.polls()
		if q := desk.polls(); p.Ticket == was.Ticket || p.Position != 2 || q.Ticket != p.Ticket {
			t.Errorf("the phone has %+v, the desktop %+v, an hour ago %+v", p, q, was)
		}
	})
}

// The site vouches for people: they compute nothing, also those whose ticket of before was unproven.
func TestPeopleSolveNoChallenge(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		cfg := memberRoom(1, false)
		cfg.Challenge.Kind = "work"
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		g.room.SetQueueAll(true)
		for range 3 {
			g.visitor().in()
		}
		ada := g.device("ada")
		ada.in()
		before := ada.polls()
		if before.Position == 0 || before.Ticket == "" {
			t.Errorf("a person holds no place: %+v", before)
		}
		bob := g.visitor()
		for range 2 { // its first and its last try lapse without a solution
			bob.in()
			time.Sleep(time.Minute)
		}
		bob.signIn("bob")
		bob.in()
		p := bob.polls()
		where, err := g.room.FindTicket(t.Context(), p.Ticket)
		if err != nil || where.Lane != "" || p.Position != before.Position+1 {
			t.Errorf("%+v in the lane %q: %v", p, where.Lane, err)
		}
	})
}

func TestAVisitorWhoSignsInKeepsThePlace(t *testing.T) {
	bubble(t, "in the line", func(t *testing.T) {
		g := openGate(t, memberRoom(1, false))
		g.visitor().in()
		v, other := g.visitor(), g.visitor()
		v.in()
		other.in()
		was := v.poll()
		v.signIn("ada")
		if p := v.polls(); p.Ticket != was.Ticket || p.Position != 1 {
			t.Fatalf("%+v, before %+v", p, was)
		}
		phone := g.device("ada")
		phone.in()
		if p := phone.polls(); p.Ticket != was.Ticket || p.Waiting != 2 {
			t.Errorf("the phone: %+v", p)
		}
		other.signIn("ada") // of two places a person keeps the better one
		if p := other.polls(); p.Ticket != was.Ticket || p.Waiting != 1 {
			t.Errorf("the second place: %+v", p)
		}
	})
	bubble(t, "inside", func(t *testing.T) {
		g := openGate(t, memberRoom(1, false))
		v := g.visitor()
		v.in()
		stay := v.enters()
		time.Sleep(reported)
		v.signIn("ada")
		if got := v.enters(); got != stay {
			t.Errorf("the session %q, was %q", got, stay)
		}
		var tok ticket.Token // the pass says whose it is, so that nobody is asked again
		_, pass, _ := strings.Cut(v.cookie, "=")
		if err := g.room.keys.Load().Open(&tok, "shop", pass); err != nil || tok.Person == (persons.ID{}) {
			t.Errorf("a pass of %x: %v", tok.Person, err)
		}
		time.Sleep(reported)
		phone := g.device("ada")
		if got := phone.enters(); got != stay {
			t.Errorf("the phone has the session %q, want %q", got, stay)
		}
		if s := g.room.Status(); s.ActiveUsers != 1 {
			t.Errorf("%d inside of 1", s.ActiveUsers)
		}
	})
}

func TestARoomForPeopleWhoHaveSignedIn(t *testing.T) {
	bubble(t, "sends the others to the sign-in", func(t *testing.T) {
		cfg := memberRoom(5, true)
		known := true
		of := cfg.Identity.Of
		cfg.Identity.Of = func(r *http.Request) (string, string, bool) {
			if !known {
				return "", "", false
			}
			return of(r)
		}
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		v := g.visitor()
		if w := v.do("GET", "//evil.example/?a"); w.Code == 303 &&
			w.Header().Get("Location") != "/login?next=%2Fevil.example%2F%3Fa" {
			t.Errorf("sent to another host after the sign-in: %v", w.Header())
		}
		w := v.do("GET", "/shoes?size=40")
		if w.Code != 303 || w.Header().Get("Location") != "/login?next=%2Fshoes%3Fsize%3D40" || v.cookie != "" ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		v.accept = "application/json"
		if m := v.json(); m.State != StateSignIn || !strings.HasPrefix(m.SignIn, "/login") || m.Ticket != "" {
			t.Errorf("an app is told %+v", m)
		}
		if s := g.room.Status(); s.ActiveUsers != 0 || s.WaitingUsers != 0 {
			t.Errorf("%d inside, %d wait", s.ActiveUsers, s.WaitingUsers)
		}
		known = false // the keys of the sign-in are out of reach: nobody is told to sign in again
		if m := v.json(); m.State != StateWaiting || m.Ticket != "" {
			t.Errorf("%+v", m)
		}
		known = true
		v.signIn("ada")
		if v.accept = "text/html"; !v.in() {
			t.Error("signed in, and not let in")
		}
	})
}

func (v *visitor) json() (m moving2) {
	decodeHeadgate(v.g.t, v.do("GET", "/"), &m)
	return m
}

// One of the two nodes hosts the room. It dies, and the other one takes over: what it had written
// about people is in the log.
func TestAPersonHasOnePlaceAtAnyNode(t *testing.T) { virtual.Test(t, testAPersonHasOnePlaceAtAnyNode) }

func testAPersonHasOnePlaceAtAnyNode(t *testing.T) {
	cfg := memberRoom(1, true)
	cfg.SessionDuration = time.Hour
	w, a, b := twoNodes(t, cfg)
	ada := a.device("ada")
	w.until("inside", 15*time.Second, ada.in)
	if phone := b.device("ada"); phone.enters() != ada.enters() {
		t.Error("two sessions at two nodes")
	}
	people := map[string][]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 20 { // each person at both nodes in the same moment
		for _, g := range []*gate{a, b} {
			wg.Go(func() {
				name := fmt.Sprint("person ", i)
				v := g.device(name)
				v.in()
				p := v.polls()
				mu.Lock()
				people[name] = append(people[name], p.Ticket)
				mu.Unlock()
			})
		}
	}
	wg.Wait()
	all := map[string]bool{}
	for name, got := range people {
		if len(got) != 2 || got[0] != got[1] || got[0] == "" || all[got[0]] {
			t.Errorf("%s has the tickets %q", name, got)
		}
		all[got[0]] = true
	}
	host, other := "n1", b
	for _, n := range a.room.Config().Engine.Nodes() {
		if n.Name == "n2" && len(n.Rooms) > 0 {
			host, other = "n2", a
		}
	}
	w.pause(40 * time.Second) // a record names sessions that were claimed within 30 s
	w.stop[host]()
	// The next host does not know a session before it has seen its pass: a device without one waits.
	phone := other.device("ada")
	phone.accept = "application/json"
	w.until("the other node hosts the room", 30*time.Second, func() bool { return phone.json().State == StateWaiting })
	phone.accept = "text/html"
	w.pause(reported)
	if phone.in() || phone.cookie != "" {
		t.Error("a second session, or a second place")
	}
	ada.g = other
	w.until("inside", 15*time.Second, ada.in)
	w.until("inside with the phone", 15*time.Second, phone.in)
	if phone.enters() != ada.enters() {
		t.Error("two sessions after the takeover")
	}
	for name, was := range people {
		v := other.device(name)
		v.in()
		if p := v.polls(); p.Ticket != was[0] {
			t.Errorf("%s has the ticket %q after the takeover, before %q", name, p.Ticket, was[0])
		}
	}
	if s := other.room.Status(); s.ActiveUsers != 1 || s.WaitingUsers != 20 {
		t.Errorf("%d inside of 1, %d wait of 20", s.ActiveUsers, s.WaitingUsers)
	}
}

// invitedRoom is a room for invitations, which are in a header. They end after for.
func invitedRoom(users int64, after time.Duration) RoomConfig {
	cfg := memberRoom(users, true)
	end := time.Now().Add(after)
	cfg.Identity.Invitation = func(id string) (string, int, time.Time) {
		code, _, several := strings.Cut(id, "/")
		if several { // CODE/VISITOR, for three
			return code, 3, end
		}
		return id, 1, end
	}
	cfg.Identity.SignIn = "/invited?why={reason}"
	return cfg
}

// isSentAway reports whether a page is redirected to where one gets an invitation, with a reason.
func (v *visitor) isSentAway(reason string) bool {
	v.g.t.Helper()
	w := v.do("GET", "/")
	to := w.Header().Get("Location")
	if w.Code == http.StatusSeeOther && to != "/invited?why="+reason {
		v.g.t.Errorf("sent to %q, want the reason %q", to, reason)
	}
	return w.Code == http.StatusSeeOther
}

// TestTheFormOfAFolderWithAStar: what the star matches is escaped in the address of the form.
func TestTheFormOfAFolderWithAStar(t *testing.T) {
	bubble(t, "is where the visitor is", func(t *testing.T) {
		cfg := invitedRoom(10, time.Hour)
		cfg.Path, cfg.Identity.SignIn = "/*/buy", "{own}code?to={url}"
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		to := g.visitor().do("GET", "/a%25b/buy").Header().Get("Location")
		if to != "/a%25b/buy/.headgate/code?to=%2Fa%2525b%2Fbuy" {
			t.Errorf("sent to %s", to)
		}
	})
}

func TestAnInvitationLetsInOnce(t *testing.T) { //nolint:funlen // a list of cases
	bubble(t, "on all devices, and after the session on none", func(t *testing.T) {
		g := openGate(t, invitedRoom(10, time.Hour))
		time.Sleep(5 * time.Second)
		desk, phone := g.device("one"), g.device("one")
		both := desk.comesIn(10*time.Second) && phone.comesIn(10*time.Second)
		if !both || desk.enters() != phone.enters() {
			t.Fatal("the devices are not in one session")
		}
		time.Sleep(2 * time.Minute)
		for _, v := range []*visitor{desk, phone, g.device("one")} {
			if !v.isSentAway("used") {
				t.Error("a second session by the same invitation")
			}
			v.accept = "application/json"
			if m := v.json(); m.State != StateSignIn || m.Ticket != "" {
				t.Errorf("an app is told %+v", m)
			}
		}
		if !g.device("two").comesIn(10 * time.Second) {
			t.Error("another invitation counts no more")
		}
	})
	bubble(t, "also when the origin ends the session", func(t *testing.T) {
		g := openGate(t, invitedRoom(10, time.Hour))
		time.Sleep(5 * time.Second)
		v := g.device("one")
		if !v.comesIn(10 * time.Second) {
			t.Fatal("not in")
		}
		v.revoked()
		time.Sleep(reported)
		if !v.isSentAway("used") || !g.device("one").isSentAway("used") {
			t.Error("a second session by the same invitation")
		}
	})
	bubble(t, "and is not used by a place that was lost or given up", func(t *testing.T) {
		cfg := invitedRoom(1, 24*time.Hour)
		cfg.Hold = time.Minute
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		other := g.device("other")
		if !other.comesIn(10 * time.Second) {
			t.Fatal("not in")
		}
		lost, left := g.device("lost"), g.device("left")
		lost.in()
		left.in()
		left.do("POST", "/.headgate/leave")
		other.revoked()
		time.Sleep(time.Hour) // lost is called, and does not come
		for _, v := range []*visitor{g.device("lost"), g.device("left")} {
			if !v.comesIn(10 * time.Second) {
				t.Error("an invitation that let nobody in is used")
			}
			v.revoked()
			time.Sleep(reported)
		}
	})
	bubble(t, "until it ends, which ends no place and no session", func(t *testing.T) {
		cfg := invitedRoom(1, time.Minute)
		cfg.SessionDuration = 10 * time.Minute
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		inside, waits := g.device("inside"), g.device("waits")
		if !inside.comesIn(10*time.Second) || waits.in() {
			t.Fatal("a room for one")
		}
		time.Sleep(2 * time.Minute)
		if !inside.in() || !g.device("inside").in() {
			t.Error("the end of the invitation ended a session")
		}
		if p := waits.polls(); p.Position != 1 || waits.in() {
			t.Errorf("the end of the invitation ended a place: %+v", p)
		}
		if !g.device("late").isSentAway("") {
			t.Error("joined after the end")
		}
		inside.revoked()
		if !waits.comesIn(10 * time.Second) {
			t.Error("the one who waited is not in")
		}
	})
	bubble(t, "and takes no place from whoever has one without it", func(t *testing.T) {
		cfg := invitedRoom(1, 10*time.Minute)
		cfg.Identity.Required = false
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		first, other, guest := g.device("used"), g.visitor(), g.visitor()
		if !first.comesIn(10 * time.Second) {
			t.Fatal("not in")
		}
		first.revoked()
		time.Sleep(reported)
		if !first.comesIn(10 * time.Second) {
			t.Error("an invitation that was used keeps its visitor out of a room that needs none")
		}
		if first.revoked(); !g.device("used").comesIn(10 * time.Second) {
			t.Error("another device with it stays out too")
		}
		time.Sleep(2 * time.Minute)
		if !other.comesIn(10*time.Second) || guest.in() {
			t.Fatal("a room for one")
		}
		guest.signIn("used")
		if guest.in() {
			t.Fatal("a room for one")
		}
		other.revoked()
		if !guest.comesIn(10 * time.Second) {
			t.Error("an invitation that was used took a place in line")
		}
		time.Sleep(20 * time.Minute) // the invitations end
		if first = g.visitor(); !first.comesIn(10 * time.Second) {
			t.Fatal("not in")
		}
		for _, name := range []string{"one", "two"} {
			v := g.device(name)
			if v.in() {
				t.Fatal("a room for one")
			}
			first.revoked()
			if first = v; !v.comesIn(10 * time.Second) {
				t.Errorf("invitation %s has ended and took a place in line", name)
			}
		}
	})
	bubble(t, "and has to be shown with each request", func(t *testing.T) {
		g := openGate(t, invitedRoom(1, time.Hour))
		time.Sleep(5 * time.Second)
		inside, waits := g.device("inside"), g.device("waits")
		if !inside.comesIn(10*time.Second) || waits.in() {
			t.Fatal("a room for one")
		}
		for _, v := range []*visitor{inside, waits} { // revoked, or the cookie with the code is left out
			was := v.cookie
			for _, v.extra = range []http.Header{nil, {"X-Member": {"another"}}} {
				if v.cookie = was; v.in() {
					t.Error("a session without its invitation")
				}
				r := virtualRequest(t, v)
				if _, ok := g.room.PeekSession(r); ok {
					t.Error("limits and connectors see a session without its invitation")
				}
			}
		}
	})
}

func virtualRequest(t *testing.T, v *visitor) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://shop.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "192.0.2.1:1234"
	if v.extra != nil {
		r.Header = v.extra.Clone()
	}
	r.Header.Set("Cookie", v.cookie)
	return r
}

// All devices show the same codes at two nodes in the same moment, again and again, while sessions end and
// the host dies. Nobody comes in twice by one code.
func TestAnInvitationLetsInOnceAtAnyNode(t *testing.T) {
	virtual.Test(t, testAnInvitationLetsInOnceAtAnyNode)
}

func testAnInvitationLetsInOnceAtAnyNode(t *testing.T) {
	cfg := invitedRoom(1000, 24*time.Hour)
	cfg.SessionDuration = 20 * time.Second
	w, a, b := twoNodes(t, cfg)
	const codes = 6
	var sent atomic.Int64
	sessions := map[string]map[string]bool{} // by code
	burst := func(gates ...*gate) {
		var wg sync.WaitGroup
		in := make([]*visitor, codes*len(gates))
		for i := range in {
			wg.Go(func() {
				v := gates[i%len(gates)].device(fmt.Sprint("code ", i/len(gates)))
				for range 5 {
					if v.isSentAway("used") {
						sent.Add(1)
						return
					} else if v.in() {
						in[i] = v
						return
					}
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		for i, v := range in {
			if v == nil {
				continue
			}
			name := fmt.Sprint("code ", i/len(gates))
			if sessions[name] == nil {
				sessions[name] = map[string]bool{}
			}
			sessions[name][v.enters()] = true
		}
	}
	judge := func(when string, away int64) {
		t.Helper()
		for name, all := range sessions {
			if len(all) != 1 || all[""] {
				t.Errorf("%s: %s was in the sessions %v", when, name, all)
			}
		}
		if len(sessions) != codes || sent.Load() != away {
			t.Errorf("%s: %d of %d came in, %d of %d were sent away", when, len(sessions), codes, sent.Load(), away)
		}
	}
	burst(a, b, a, b)
	judge("all at once", 0)
	w.pause(time.Minute)
	burst(a, b)
	judge("after the sessions", 2*codes)
	host, other := "n1", b
	for _, n := range a.room.Config().Engine.Nodes() {
		if n.Name == "n2" && len(n.Rooms) > 0 {
			host, other = "n2", a
		}
	}
	w.stop[host]()
	w.until("the other node hosts the room", 30*time.Second, func() bool {
		v := other.device("code 0")
		return v.isSentAway("used")
	})
	sent.Store(0)
	burst(other)
	judge("after the takeover", codes)
	if s := other.room.Status(); s.WaitingUsers != 0 {
		t.Errorf("%d wait", s.WaitingUsers)
	}
}

func TestACodeLetsInAsManyAsItHasUses(t *testing.T) {
	bubble(t, "and not one more", func(t *testing.T) {
		g := openGate(t, invitedRoom(10, time.Hour))
		time.Sleep(5 * time.Second)
		inside := map[string]bool{}
		for _, name := range []string{"a", "b", "c", "a"} { // a has another device
			v := g.device("code/" + name)
			if !v.comesIn(10 * time.Second) {
				t.Fatalf("%s is not in", name)
			}
			inside[v.enters()] = true
		}
		if len(inside) != 3 {
			t.Errorf("%d sessions of three visitors", len(inside))
		}
		if !g.device("code/d").isSentAway("used") || !g.device("other/d").comesIn(10*time.Second) {
			t.Error("the fourth by the code is in, or the first of another one is not")
		}
		time.Sleep(2 * time.Minute)
		for _, name := range []string{"a", "b", "c", "d"} {
			if !g.device("code/" + name).isSentAway("used") {
				t.Errorf("%s comes in after all uses", name)
			}
		}
	})
	bubble(t, "also while they wait, and a place that was lost or given up takes none", func(t *testing.T) {
		cfg := invitedRoom(1, 24*time.Hour)
		cfg.Hold = time.Minute
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		other := g.device("other/x")
		if !other.comesIn(10 * time.Second) {
			t.Fatal("not in")
		}
		all := map[string]*visitor{}
		for _, name := range []string{"a", "b", "c"} {
			all[name] = g.device("code/" + name)
			all[name].in()
			if p := all[name].polls(); p.Position != int64(len(all)) {
				t.Fatalf("%s waits: %+v", name, p)
			}
		}
		if !g.device("code/d").isSentAway("used") {
			t.Error("a fourth one waits")
		}
		all["a"].do("POST", "/.headgate/leave")
		time.Sleep(5 * time.Second)
		late := g.device("code/d")
		if late.in(); late.polls().Position != 3 {
			t.Error("a place that was given up has taken a use")
		}
		if again := g.device("code/a"); !again.isSentAway("used") {
			t.Error("a fourth one waits")
		}
		other.revoked()
		time.Sleep(time.Hour) // all are called, and do not come
		for _, name := range []string{"e", "a", "b"} {
			v := g.device("code/" + name)
			if !v.comesIn(10 * time.Second) {
				t.Errorf("%s is not in", name)
			}
			v.revoked()
			time.Sleep(reported)
		}
		if !g.device("code/c").isSentAway("used") {
			t.Error("in by a fourth use")
		}
	})
	bubble(t, "and whoever waits without a code takes one of the uses", func(t *testing.T) {
		cfg := invitedRoom(1, 24*time.Hour)
		cfg.Identity.Required = false
		g := openGate(t, cfg)
		if first := g.visitor(); !first.in() {
			t.Fatal("not in")
		}
		tickets := map[string]bool{}
		for i, name := range []string{"a", "b", "c", "d"} {
			guest := g.visitor()
			guest.in()
			guest.signIn("code/" + name)
			guest.in()
			tickets[guest.polls().Ticket] = true
			if p := g.device("code/" + name); i < 3 {
				p.in()
				if x := p.polls(); !tickets[x.Ticket] {
					t.Errorf("%s has another place on another device", name)
				}
			}
		}
		if len(tickets) != 4 || tickets[""] {
			t.Errorf("four visitors have the places %v", tickets)
		}
	})
}

// All visitors of each code come at two nodes in the same moment, again and again, while sessions end and the
// host dies. Nobody comes in by a fourth use, and nobody takes two.
func TestUsesAreExactAtAnyNode(t *testing.T) { virtual.Test(t, testUsesAreExactAtAnyNode) }

func testUsesAreExactAtAnyNode(t *testing.T) {
	cfg := invitedRoom(1000, 24*time.Hour)
	cfg.SessionDuration = 20 * time.Second
	w, a, b := twoNodes(t, cfg)
	const codes, visitors = 3, 5
	sessions := map[string]map[string]map[string]bool{} // by code and visitor
	burst := func(gates ...*gate) {
		var wg sync.WaitGroup
		in := make([]*visitor, codes*visitors*len(gates))
		names := func(i int) (code, name string) {
			return fmt.Sprint("code ", i%codes), fmt.Sprint(i / codes % visitors)
		}
		for i := range in {
			wg.Go(func() {
				code, name := names(i)
				v := gates[i/codes/visitors].device(code + "/" + name)
				for range 5 {
					if v.isSentAway("used") {
						return
					} else if v.in() {
						in[i] = v
						return
					}
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		for i, v := range in {
			if v == nil {
				continue
			}
			code, name := names(i)
			if sessions[code] == nil {
				sessions[code] = map[string]map[string]bool{}
			}
			if sessions[code][name] == nil {
				sessions[code][name] = map[string]bool{}
			}
			sessions[code][name][v.enters()] = true
		}
	}
	judge := func(when string) {
		t.Helper()
		for code, all := range sessions {
			for name, own := range all {
				if len(own) != 1 {
					t.Errorf("%s: %s/%s was in the sessions %v", when, code, name, own)
				}
			}
			if len(all) != 3 {
				t.Errorf("%s: %d came in by %s", when, len(all), code)
			}
		}
		if len(sessions) != codes {
			t.Errorf("%s: %d codes let somebody in", when, len(sessions))
		}
	}
	burst(a, b)
	judge("all at once")
	w.pause(time.Minute)
	burst(a, b)
	judge("after the sessions")
	host, other := "n1", b
	for _, n := range a.room.Config().Engine.Nodes() {
		if n.Name == "n2" && len(n.Rooms) > 0 {
			host, other = "n2", a
		}
	}
	w.stop[host]()
	w.until("the other node hosts the room", 30*time.Second, func() bool {
		return other.device("code 0/0").isSentAway("used")
	})
	burst(other)
	judge("after the takeover")
	if s := other.room.Status(); s.WaitingUsers != 0 {
		t.Errorf("%d wait", s.WaitingUsers)
	}
}
