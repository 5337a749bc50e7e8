package headgate

import (
	"cmp"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// work is the challenge of an answer, as ALTCHA's clients read it.
type work struct {
	Parameters struct {
		Cost      int    `json:"cost"`
		KeyPrefix string `json:"keyPrefix"`
		Nonce     string `json:"nonce"`
		Salt      string `json:"salt"`
	} `json:"parameters"`
	Signature string `json:"signature"`
}

// solve returns the value of the header for a solution. With a key it is that one, which is wrong.
func (w *work) solve(t *testing.T, key string) string {
	t.Helper()
	nonce, err1 := hex.DecodeString(w.Parameters.Nonce)
	salt, err2 := hex.DecodeString(w.Parameters.Salt)
	if err1 != nil || err2 != nil || w.Parameters.Cost < 1000 {
		t.Fatal(w, err1, err2)
	}
	n := uint32(0)
	for ; key == ""; n++ {
		password := string(binary.BigEndian.AppendUint32(slices.Clone(nonce), n))
		b, err := pbkdf2.Key(sha256.New, password, salt, w.Parameters.Cost, 32)
		if err != nil {
			t.Fatal(err)
		}
		if key = hex.EncodeToString(b); strings.HasPrefix(key, w.Parameters.KeyPrefix) {
			break
		}
		key = ""
	}
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil,
		`{"challenge":{"signature":%q},"solution":{"counter":%d,"derivedKey":%q}}`, w.Signature, n, key))
}

// asks polls, with a solution or "". It returns the state, the position and the challenge.
func (v *visitor) asks(solution string) (m struct {
	State     State `json:"state"`
	Position  int64
	Notice    string
	Ticket    string
	Challenge *work
}) {
	v.extra, v.accept = http.Header{PollHeader: {"1"}, "Headgate-Solution": {solution}}, "application/json"
	w := v.do("GET", "/")
	v.extra, v.accept = nil, "text/html"
	decodeHeadgate(v.g.t, w, &m)
	return m
}

// joins loads the page as a newcomer, and returns the challenge of its ticket.
func (v *visitor) joins() *work {
	v.accept = "application/json"
	var m struct{ Challenge *work }
	w := v.do("GET", "/")
	decodeHeadgate(v.g.t, w, &m)
	v.accept = "text/html"
	return m.Challenge
}

// challenged opens a room with challenges in which nobody is called until SetQueueAll(false), and in
// which one visitor waits.
func challenged(t *testing.T, cfg RoomConfig) (*gate, *visitor) {
	t.Helper()
	cfg.Challenge.Kind, cfg.QueueAll = cmp.Or(cfg.Challenge.Kind, "work"), true
	g := openGate(t, cfg)
	first := g.visitor()
	first.joins()
	if m := first.asks(""); m.Challenge != nil || m.Ticket == "" {
		t.Fatalf("a proof while nobody else waits: %+v", m)
	}
	return g, first
}

// Who solves the challenge has the place of its arrival. Who does not waits in a lane with a tenth of
// the calls, and comes in too. Nobody is overtaken in either.
func TestWhoSolvesWaitsLess(t *testing.T) {
	if testing.Short() {
		return // the race detector slows the solving tenfold: make all plays it
	}
	synctest.Test(t, func(t *testing.T) {
		g, first := challenged(t, RoomConfig{TotalActiveUsers: 1000, NewUsersPerMinute: 60})
		defer g.stop()
		var all []*visitor
		kind := map[*visitor]string{first: "solved"}
		works := map[*visitor]*work{}
		for i := range 48 {
			v := g.visitor()
			v.addr = fmt.Sprintf("192.0.2.%d:1", i)
			all = append(all, v)
			if works[v] = v.joins(); works[v] == nil {
				t.Fatal("no challenge while somebody waits")
			}
			kind[v] = "unsolved"
			if i%2 == 1 {
				kind[v] = "solved"
			}
		}
		for _, v := range slices.Backward(all) { // the order of arrival counts, not that of solutions
			if kind[v] == "solved" {
				if m := v.asks(works[v].solve(t, "")); m.Challenge != nil || m.Position == 0 {
					t.Fatalf("%+v", m)
				}
			}
		}
		if n := g.room.Status().WaitingUsers; n != 25 {
			t.Fatalf("%d wait, 25 have solved or came first", n)
		}
		notices, tries := 0, 0
		for range 25 { // seconds: each ticket has ten, twice
			for _, v := range all {
				switch v.asks("").Notice {
				case "unsolved":
					notices++
				case "new_challenge":
					tries++
				}
			}
			first.poll()
			time.Sleep(time.Second)
		}
		lanes := g.room.Status().Lanes
		if notices != 24 || tries != 24 || len(lanes) != 1 ||
			lanes[0].Name != "unsolved" || lanes[0].Waiting != 24 {
			t.Fatalf("%d notices, %d tries, %+v", notices, tries, lanes)
		}
		g.room.SetQueueAll(false)
		left := append([]*visitor{first}, all...)
		var came []string
		order := map[string][]int{}
		for len(left) > 0 && len(came) < 1000 {
			time.Sleep(250 * time.Millisecond)
			left = slices.DeleteFunc(left, func(v *visitor) bool {
				if v.asks("").State != StateCalled || !v.in() {
					return false
				}
				came = append(came, kind[v])
				order[kind[v]] = append(order[kind[v]], slices.Index(all, v))
				return true
			})
			if time.Since(time.Unix(946684800, 0)) > time.Hour { // the bubble's clock begins there
				t.Fatalf("%d never come in", len(left))
			}
		}
		early := 0
		for _, k := range came[:25] {
			if k == "unsolved" {
				early++
			}
		}
		if early < 2 || early > 4 {
			t.Errorf("%d of the first 25 have not solved", early)
		}
		for k, o := range order {
			if !slices.IsSorted(o) {
				t.Errorf("%s: %v", k, o)
			}
		}
		c := g.room.Status().Challenges
		if c.Issued < 48 || c.Solved != 24 {
			t.Errorf("%+v", c)
		}
	})
}

// A slot does not stay empty while somebody present has not solved the challenge: neither when nobody
// else waits, nor when those who wait are absent.
func TestNoSlotWaitsForASolution(t *testing.T) {
	for _, method := range []Method{MethodFIFO, MethodRandom} {
		synctest.Test(t, func(t *testing.T) {
			g, first := challenged(t, RoomConfig{
				TotalActiveUsers: 100, NewUsersPerMinute: 600, Method: method})
			defer g.stop()
			time.Sleep(2 * time.Minute) // first keeps its place, and is absent
			second := g.visitor()
			if second.joins() == nil {
				t.Fatal("no challenge")
			}
			if m := second.asks(""); m.Challenge == nil {
				t.Fatalf("%+v", m)
			}
			g.room.SetQueueAll(false)
			for range 4 {
				time.Sleep(time.Second)
				second.asks("")
			}
			if !second.in() {
				t.Errorf("%s: a free slot waited for a solution", method)
			}
			if !first.in() {
				t.Errorf("%s: who came first is not in", method)
			}
		})
	}
}

// A solution is for the ticket that it was made for, however often it is sent. It works again and
// again for that ticket, which is one place.
func TestASolutionIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, first := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600})
		defer g.stop()
		a, b := g.visitor(), g.visitor()
		wa, wb := a.joins(), b.joins()
		sa := wa.solve(t, "")
		if m := b.asks(sa); m.Challenge == nil || m.Challenge.Signature != wb.Signature {
			t.Errorf("a solution of another ticket is accepted: %+v", m)
		}
		before := a.cookie
		ticket := a.asks(sa).Ticket
		for range 3 { // the same cookie and the same solution, as on several nodes at once
			a.cookie = before
			if m := a.asks(sa); m.Challenge != nil || m.Ticket != ticket {
				t.Errorf("%+v", m)
			}
		}
		if n := g.room.Status().WaitingUsers; n != 2 {
			t.Errorf("%d wait, not 2", n)
		}
		if c := g.room.Status().Challenges; c.Solved != 3 || c.Refused["repeated"] != 1 || c.Refused["foreign"] != 1 {
			t.Errorf("%+v", c)
		}
		first.poll()
		for range 70 { // its ticket is over, and then the challenge too: a newcomer with a new one
			time.Sleep(time.Second)
			first.poll()
		}
		late := wb.solve(t, "")
		if m := b.asks(late); m.Ticket == "" || m.Ticket == ticket {
			t.Errorf("%+v", m)
		}
		if c := g.room.Status().Challenges; c.Refused["expired"] != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// Who solves too late, as a slow phone, has one more try, with a page that polls meanwhile and with a
// client that does not. The second time it waits in the lane: nobody computes for ever.
func TestASolutionThatComesTooLateHasOneMoreTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, first := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600})
		defer g.stop()
		rest := func() {
			time.Sleep(4 * time.Second)
			first.poll()
		}
		page, client := g.visitor(), g.visitor()
		w, late := page.joins(), client.joins()
		for range 2 {
			rest()
			if m := page.asks(""); m.Challenge == nil || m.Challenge.Signature != w.Signature {
				t.Fatalf("%+v", m)
			}
		}
		rest() // 12 s
		m := page.asks("")
		if m.Challenge == nil || m.Challenge.Signature == w.Signature || m.Notice != "new_challenge" {
			t.Fatalf("%+v", m)
		}
		if m = page.asks(m.Challenge.solve(t, "")); m.Challenge != nil || m.Position != 2 {
			t.Errorf("%+v", m)
		}
		for _, want := range []string{"new_challenge", "unsolved"} {
			if m = client.asks(late.solve(t, "")); m.Notice != want {
				t.Fatalf("%+v, want %s", m, want)
			}
			late = m.Challenge
			for range 3 {
				if rest(); want == "unsolved" {
					client.asks("")
				}
			}
		}
		if m = client.asks(""); late != nil || m.Position == 0 || m.Challenge != nil {
			t.Errorf("it has no place: %+v", m)
		}
		if lanes := g.room.Status().Lanes; len(lanes) != 1 || lanes[0].Waiting != 1 {
			t.Errorf("%+v", lanes)
		}
	})
}

// wrongs lets some visitors of one network send wrong solutions that look right, again and again.
func wrongs(t *testing.T, g *gate, visitors int) {
	for range visitors {
		v := g.visitor()
		bad := v.joins().solve(t, "00"+strings.Repeat("ab", 31))
		for range 5 {
			v.asks(bad)
		}
	}
}

// Of wrong solutions that look right, one of a ticket is derived, and only some of a network.
func TestWrongSolutionsOfANetworkAreBounded(t *testing.T) {
	if testing.Short() {
		return // the race detector slows the solving tenfold: make all plays it
	}
	synctest.Test(t, func(t *testing.T) {
		g, first := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600,
			JoinLimit: JoinLimit{Amount: 100}})
		defer g.stop()
		neighbor, far := g.visitor(), g.visitor()
		far.addr = "198.51.100.7:1"
		right := neighbor.joins().solve(t, "")
		wrongs(t, g, 90)
		solutions := g.room.face.Load().solutions
		for range 260 - 90 - 1 { // as by repeated ones
			solutions.Over(netip.MustParseAddr("192.0.2.1"), g.room.boot()) // of httptest
		}
		wrongs(t, g, 2)
		c := g.room.Status().Challenges
		if n := c.Refused; n["wrong"] != 91 || n["busy"] != 5 || n["repeated"] != 364 {
			t.Errorf("%+v", c)
		}
		if m := far.asks(far.joins().solve(t, "")); m.Challenge != nil {
			t.Errorf("a visitor of another network is not checked: %+v", m)
		}
		// A visitor of the same network that computes waits for a check, and not in the lane.
		for i := 0; ; i++ {
			m := neighbor.asks(right)
			if m.Notice == "unsolved" || i > 60 {
				t.Fatalf("%d: %+v", i, m)
			}
			if m.Challenge == nil {
				break
			}
			right = m.Challenge.solve(t, "")
			time.Sleep(4 * time.Second)
			first.poll()
			far.asks("")
		}
		if lanes := g.room.Status().Lanes; lanes[0].Waiting != 0 {
			t.Errorf("%+v", lanes)
		}
	})
}

// Without join_limit there is no limit of solutions of a network: all may come through one proxy.
func TestWithoutJoinLimitAllSolutionsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600})
		defer g.stop()
		wrongs(t, g, 50)
		if n := g.room.Status().Challenges.Refused; n["wrong"] != 50 || n["busy"] != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// burst lets many newcomers of as many networks join at once, without a solution.
func burst(t *testing.T, g *gate, n int) (all []*visitor) {
	t.Helper()
	for i := range n {
		v := g.visitor()
		v.bare = true
		v.addr = fmt.Sprintf("192.0.%d.2:1", i)
		if v.joins() == nil {
			t.Fatal("no challenge")
		}
		all = append(all, v)
	}
	return all
}

// Newcomers who all join before the first of them polls have challenges: one of them is the only one
// that waits, and needs no solution.
func TestABurstIsChallenged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 100, NewUsersPerMinute: 600, QueueAll: true,
			Challenge: Challenge{Kind: "work"}})
		defer g.stop()
		all := burst(t, g, 250)
		time.Sleep(time.Second)
		for range 2 {
			for _, v := range all {
				v.asks("")
			}
		}
		if n := g.room.Status().WaitingUsers; n != 1 {
			t.Errorf("%d have a place", n)
		}
	})
}

// Only absent visitors were found by the last call. While nobody is called, that says nothing.
func TestAbsentVisitorsDoNotOpenTheLine(t *testing.T) {
	for _, method := range []Method{MethodFIFO, MethodRandom} {
		synctest.Test(t, func(t *testing.T) {
			g, _ := challenged(t, RoomConfig{
				TotalActiveUsers: 100, NewUsersPerMinute: 600, Method: method})
			defer g.stop()
			time.Sleep(2 * time.Minute) // the first is absent
			g.room.SetQueueAll(false)
			time.Sleep(3 * time.Second)
			g.room.SetQueueAll(true)
			time.Sleep(3 * time.Second)
			for _, v := range burst(t, g, 50) {
				v.asks("")
			}
			if n := g.room.Status().WaitingUsers; n != 1 {
				t.Errorf("%s: %d have a place", method, n)
			}
		})
	}
}

// Slots that are free while only absent visitors wait are for those who come. They make no more places
// than there are slots: neither in the moment before the next call, nor for tickets that are called and
// never come.
func TestFreeSlotsMakeNoStockOfPlaces(t *testing.T) {
	for _, method := range []Method{MethodFIFO, MethodRandom} {
		for _, x := range []struct{ slots, perMinute, seconds, most int64 }{
			{5, 60, 9, 5}, {100, 5, 1, 5}, {1000, 120, 1, 22}} { // 20 are called in 10 s
			synctest.Test(t, func(t *testing.T) {
				g, _ := challenged(t, RoomConfig{
					TotalActiveUsers: x.slots, NewUsersPerMinute: x.perMinute, Method: method})
				defer g.stop()
				time.Sleep(2 * time.Minute) // the first is absent
				g.room.SetQueueAll(false)
				time.Sleep(3 * time.Second)
				all := burst(t, g, 60)
				for second := range x.seconds { // until the tickets lapse
					for _, v := range all {
						v.asks("")
					}
					if n := g.room.Status().WaitingUsers; n > x.most+1 {
						t.Fatalf("%s, %+v: %d have a place after %d s", method, x, n, second)
					}
					time.Sleep(time.Second)
				}
			})
		}
	}
}

// When a line opens with more slots than visitors, a challenge delays nobody.
func TestFreeSlotsForAllNeedNoSolution(t *testing.T) {
	last := map[string]time.Duration{}
	for _, kind := range []string{"", "work"} {
		synctest.Test(t, func(t *testing.T) {
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 100, NewUsersPerMinute: 6000, QueueAll: true,
				Challenge: Challenge{Kind: kind}})
			defer g.stop()
			first := g.visitor()
			first.joins()
			first.asks("")
			all := make([]*visitor, 20)
			for i := range all {
				all[i] = g.visitor()
				all[i].bare = true
				all[i].addr = fmt.Sprintf("192.0.%d.2:1", i)
				all[i].joins()
				all[i].asks("")
			}
			g.room.SetQueueAll(false)
			start := time.Now()
			for len(all) > 0 {
				all = slices.DeleteFunc(all, func(v *visitor) bool {
					return v.asks("").State == StateCalled && v.in()
				})
				last[kind] = time.Since(start)
				first.poll()
				time.Sleep(2 * time.Second)
			}
		})
	}
	if last["work"] > last[""]+2*time.Second {
		t.Errorf("the last is in after %v", last)
	}
}

// The answer to a late poll of the waiting page does not replace the pass of the browser.
func TestASolutionReplacesNoPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, first := challenged(t, RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 600})
		defer g.stop()
		v := g.visitor()
		solution := v.joins().solve(t, "")
		ticket := v.cookie
		v.asks(solution)
		g.room.SetQueueAll(false)
		for range 3 {
			time.Sleep(time.Second)
			first.poll()
			v.asks("")
		}
		if !first.in() || !v.in() {
			t.Fatal("not in")
		}
		for range 2 {
			v.do("GET", "/a.css")
			time.Sleep(3 * time.Second)
		}
		for _, path := range []string{"/", "/.headgate/here.gif"} {
			for _, s := range []string{"", solution} {
				v.cookie = ticket
				v.extra = http.Header{"Headgate-Solution": {s}}
				if path == "/" {
					v.extra[PollHeader] = []string{"1"}
				}
				if w := v.do("GET", path); len(w.Header()["Set-Cookie"]) > 0 {
					t.Errorf("%s sets a cookie: %s", path, w.Body)
				}
			}
		}
	})
}

// Lanes that the settings have no more keep the lane of the unsolved from beginning. The ordinary line,
// where they wait meanwhile, has challenges for them too.
func TestNoLaneForTheUnsolvedIsNoWayIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600, QueueAll: true,
			Lanes: []Lane{{"a", 10}, {"b", 10}, {"c", 10}},
			Rules: byPath{"/a": RuleLane, "/b": RuleLane + 1, "/c": RuleLane + 2}})
		defer g.stop()
		var old []*visitor
		for _, path := range []string{"/a", "/b", "/c", "/"} {
			v := g.visitor()
			v.do("GET", path)
			v.poll()
			old = append(old, v)
		}
		err := g.again(func(c *RoomConfig) { c.Lanes, c.Rules, c.Challenge.Kind = nil, nil, "work" })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		all := burst(t, g, 20)
		for range 12 {
			time.Sleep(3 * time.Second)
			for _, v := range old {
				v.poll()
			}
			for _, v := range all {
				v.asks("")
			}
		}
		if n := g.room.Status().WaitingUsers; n != 4 {
			t.Errorf("%d have a place", n)
		}
	})
}

// A restart makes no places of tickets that have solved nothing. Who solves after it has the place of
// its arrival, and who does not is asked again, as without a restart.
func TestARestartProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, first := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600})
		all := burst(t, g, 50)
		early := g.visitor()
		right := early.joins().solve(t, "")
		late := g.visitor()
		late.asks(late.joins().solve(t, ""))
		time.Sleep(3 * time.Second)
		first.poll()
		g, _ = g.restart(0)
		defer g.stop()
		for _, v := range append(all, first, early, late) {
			v.g = g
		}
		first.poll()
		late.poll()
		time.Sleep(2 * time.Second)
		for _, v := range all {
			if m := v.asks(""); m.Challenge == nil || m.Notice != "" {
				t.Fatalf("a place for nothing: %+v", m)
			}
		}
		if m := early.asks(right); m.Challenge != nil {
			t.Errorf("%+v", m)
		}
		if e, l := early.pass().ID, late.pass().ID; e >= l || g.room.Status().WaitingUsers != 3 {
			t.Errorf("%d before %d, %d wait", e, l, g.room.Status().WaitingUsers)
		}
		for range 5 {
			time.Sleep(2 * time.Second)
			first.poll()
			early.poll()
			late.poll()
		}
		for _, v := range all {
			if m := v.asks(""); m.Notice != "new_challenge" {
				t.Fatalf("%+v", m)
			}
		}
		if n := g.room.Status().WaitingUsers; n != 3 {
			t.Errorf("%d wait", n)
		}
	})
}

// A ticket that is not solved is no place in another data center either: its visitor joins the line
// there, with a challenge, when its own data center is out of reach.
func TestAnUnsolvedTicketRoamsNowhere(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		w := newWorld(t, RoomConfig{Name: "shop", TotalActiveUsers: 3, NewUsersPerMinute: 1000,
			SessionDuration: time.Minute, Challenge: Challenge{Kind: "work"}, QueueAll: true}, "sjc", "lhr")
		sjc := w.gates["sjc"]
		for _, g := range w.gates { // one waits in each
			v := g.visitor()
			v.joins()
			v.asks("")
		}
		v := w.gates["lhr"].visitor()
		v.bare = true
		old := v.joins()
		ticket, own := v.cookie, v.asks("").Ticket
		w.links["sjclhr"].SetCut(true)
		v.g = sjc
		w.until("it has a challenge of sjc", 30*time.Second, func() bool {
			v.cookie = ticket
			m := v.asks("")
			if m.Challenge == nil || m.Position > 0 && m.Ticket == own {
				t.Fatalf("a place for nothing: %+v", m)
			}
			return m.Ticket != own && m.Challenge.Signature != old.Signature
		})
		if n := sjc.room.Status(); n.WaitingUsers != 1 {
			t.Errorf("%d wait at sjc", n.WaitingUsers)
		}
	})
}

// A room without challenges answers as it always has.
func TestTheAnswerNamesChallengesOnlyWithThem(t *testing.T) {
	for kind, has := range map[string]bool{"": false, "work": true} {
		synctest.Test(t, func(t *testing.T) {
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 1, NewUsersPerMinute: 1, QueueAll: true, Challenge: Challenge{Kind: kind}})
			defer g.stop()
			v := g.visitor()
			v.joins()
			v.extra = http.Header{PollHeader: {"1"}}
			if body := v.do("GET", "/").Body.String(); strings.Contains(body, `,"challenge":null`) != has {
				t.Errorf("%q: %s", kind, body)
			}
		})
	}
}

// Neither the image of the waiting page nor a page for another device makes a place of a ticket.
func TestOnlyASolutionProves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600})
		defer g.stop()
		v := g.visitor()
		v.joins()
		for _, path := range []string{"/.headgate/here.gif", "/.headgate/move", "/"} {
			v.do("GET", path)
		}
		if st := g.room.Status(); st.WaitingUsers != 1 || st.Provisional != 1 {
			t.Errorf("%d wait, %d provisional", st.WaitingUsers, st.Provisional)
		}
		m := v.asks("")
		x, err := g.room.FindTicket(t.Context(), m.Ticket)
		if err != nil || x.Status != "provisional" || !strings.Contains(x.Reason, "has not solved its challenge") {
			t.Errorf("%+v %v", x, err)
		}
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}

// With rules of challenges only those newcomers have one that match. Whoever has not solved it gets rid of
// it neither by another path nor by another spelling of one.
func TestRulesNameWhoIsChallenged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600, QueueAll: true,
			Challenge: Challenge{Kind: "work", ByRules: true},
			Rules:     byPath{"/tickets": RuleChallenge, "/slow": RuleLane},
			Lanes:     []Lane{{Name: "slow", Share: 20}}}
		g := openGate(t, cfg)
		defer g.stop()
		joins := func(path string) (*visitor, *work) {
			v := g.visitor()
			v.bare, v.accept = true, "application/json"
			var m struct{ Challenge *work }
			decodeHeadgate(t, v.do("GET", path), &m)
			return v, m.Challenge
		}
		first, _ := joins("/")
		if m := first.asks(""); m.Position != 1 {
			t.Fatalf("%+v", m)
		}
		free, w := joins("/other")
		if m := free.asks(""); w != nil || m.Challenge != nil || m.Position != 2 {
			t.Errorf("no rule names it: %+v", m)
		}
		if _, w = joins("/slow"); w != nil {
			t.Error("a visitor of a lane has a challenge")
		}
		named, w := joins("/tickets/1")
		if m := named.asks(""); w == nil || m.Challenge == nil || m.Challenge.Signature != w.Signature {
			t.Fatalf("the challenge of a rule: %+v", m)
		}
		if m := named.asks(w.solve(t, "")); m.Challenge != nil || m.Position != 3 {
			t.Errorf("it is solved: %+v", m)
		}
		idle, _ := joins("/tickets/1")
		for range 11 { // its ticket lapses
			time.Sleep(time.Second)
			first.poll()
			named.poll()
		}
		if m := idle.asks(""); m.Challenge == nil || m.Notice != "new_challenge" { // asks for /
			t.Errorf("an unsolved challenge is gone by another path: %+v", m)
		}
		st := g.room.Status()
		if st.Challenges.Issued != 3 || st.Totals.Challenged != 2 || st.Totals.SentToLane != 1 {
			t.Errorf("%+v %+v", st.Challenges, st.Totals)
		}
		for _, path := range []string{"/a/../tickets/1", "//tickets", "/%74ickets", "/./tickets", "/x;/../tickets"} {
			v := g.visitor()
			if w := v.do("GET", path); w.Code != http.StatusPermanentRedirect || v.cookie != "" {
				t.Errorf("%s: %d, cookie %q", path, w.Code, v.cookie)
			}
		}
	})
}

// In a room that holds nobody it is counted how many newcomers would have had a challenge.
func TestShadowCountsChallenges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 1, Shadow: true,
			Challenge: Challenge{Kind: "work", ByRules: true}, Rules: byPath{"/tickets": RuleChallenge}})
		defer g.stop()
		for _, path := range []string{"/tickets", "/tickets", "/other", "/tickets"} { // the first has a slot
			v := g.visitor()
			if w := v.do("GET", path); w.Code != 200 {
				t.Errorf("%s: %d", path, w.Code)
			}
			v.do("GET", path) // the same visitor
		}
		st := g.room.Status()
		if st.Challenges.Issued != 2 || st.Totals.Challenged == 0 || st.Totals.Shadowed != 3 {
			t.Errorf("%+v %+v", st.Challenges, st.Totals)
		}
	})
}

func TestChallengesThatDoNotExist(t *testing.T) {
	for _, cfg := range []RoomConfig{
		{Challenge: Challenge{Kind: "puzzle"}},
		{Challenge: Challenge{Kind: "work"}, Lanes: []Lane{{"a", 1}, {"b", 1}, {"c", 1}}},
		{Challenge: Challenge{Kind: "work"}, Lanes: []Lane{{"a", 80}}},
	} {
		cfg.Name, cfg.TotalActiveUsers, cfg.NewUsersPerMinute = "shop", 1, 1
		if _, err := OpenRoom(t.Context(), cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

// A visitor that an operator releases from the lane has the place of its arrival, also after a kill, and
// comes in once: neither a second device with its cookie nor a cookie of before does.
func TestAReleasedVisitorHasThePlaceOfItsArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{TotalActiveUsers: 3, NewUsersPerMinute: 600, QueueAll: true,
			Challenge: Challenge{Kind: "work"}})
		first, slow, other := g.visitor(), g.visitor(), g.visitor()
		first.joins()
		first.asks("")
		slow.joins()
		other.asks(other.joins().solve(t, ""))
		for range 25 {
			time.Sleep(time.Second)
			first.poll()
			other.poll()
			slow.asks("")
		}
		m := slow.asks("")
		w, err := g.room.FindTicket(t.Context(), m.Ticket)
		if err != nil || w.Lane != "unsolved" || w.Released || m.Position != 3 {
			t.Fatalf("%+v, %+v, %v", m, w, err)
		}
		old := *slow
		if err := g.room.ReleaseTicket(t.Context(), " "+strings.ToUpper(m.Ticket)); err != nil {
			t.Fatal(err)
		}
		if err := g.room.ReleaseTicket(t.Context(), first.asks("").Ticket); err == nil {
			t.Error("a ticket of the ordinary line is released")
		}
		if err := g.room.ReleaseTicket(t.Context(), "zzzzzzzz"); err == nil {
			t.Error("a ticket that was never issued is released")
		}
		g, _ = g.kill(p, 0)
		defer g.stop()
		device := old
		for _, v := range []*visitor{first, slow, other, &old, &device} {
			v.g = g
		}
		for range 8 {
			time.Sleep(time.Second)
			first.poll()
			other.poll()
			slow.asks("")
		}
		w, err = g.room.FindTicket(t.Context(), m.Ticket)
		if got := slow.asks(""); err != nil || !w.Released || w.Position != 2 || got.Ticket != m.Ticket {
			t.Errorf("%+v, %+v, %v", got, w, err)
		}
		g.room.SetQueueAll(false)
		var came []*visitor
		for range 500 {
			time.Sleep(20 * time.Millisecond)
			for _, v := range []*visitor{other, slow, first} {
				if !slices.Contains(came, v) && v.asks("").State == StateCalled && v.in() {
					came = append(came, v)
				}
			}
		}
		if len(came) != 3 || came[2] != other { // two are called at once
			t.Errorf("%d came, in another order", len(came))
		}
		device.in() // the same session, or none
		if n := g.room.Status().ActiveUsers; n != 3 {
			t.Errorf("%d are inside", n)
		}
		for range 100 { // long after the claim is forgotten
			time.Sleep(time.Second)
			for _, v := range []*visitor{first, slow, other} {
				v.in()
			}
		}
		if old.asks("").State == StateCalled || old.in() {
			t.Error("a used ticket lets somebody in again")
		}
	})
}

// A ticket that was released and used gains nothing in another data center while its own is out of reach: a
// copy of its cookie stands behind all who wait there.
func TestAReleasedTicketRoamsNowhere(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		w := newWorld(t, RoomConfig{Name: "shop", TotalActiveUsers: 3, NewUsersPerMinute: 1000,
			SessionDuration: time.Hour, Challenge: Challenge{Kind: "work"}, QueueAll: true}, "sjc", "lhr")
		sjc, lhr := w.gates["sjc"], w.gates["lhr"]
		here := map[*gate]*visitor{} // one waits in each
		for _, g := range w.gates {
			here[g] = g.visitor()
			here[g].joins()
			here[g].asks("")
		}
		slow, other := lhr.visitor(), lhr.visitor() // the other one stays in the lane, before it
		other.joins()
		slow.joins()
		first := slow.asks("").Ticket
		w.until("it waits in the lane", time.Minute, func() bool {
			w.pause(time.Second)
			here[sjc].poll()
			here[lhr].poll()
			other.asks("")
			m := slow.asks("")
			x, err := lhr.room.FindTicket(t.Context(), m.Ticket)
			return err == nil && m.Ticket != first && x.Lane == "unsolved"
		})
		old, id := *slow, slow.asks("").Ticket
		if err := lhr.room.ReleaseTicket(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		for _, g := range w.gates {
			g.room.SetQueueAll(false)
		}
		w.until("it is in", time.Minute, func() bool {
			here[lhr].in()
			other.asks("")
			return slow.asks("").State == StateCalled && slow.in()
		})
		w.until("those of before are in", time.Minute, func() bool {
			other.asks("")
			return here[lhr].in() && here[sjc].in()
		})
		after := sjc.visitor()
		if c := after.joins(); c != nil { // nobody else waits, as far as is known
			after.asks(c.solve(t, ""))
		}
		for range 8 { // a snapshot of lhr has come since
			other.asks("")
			after.asks("")
			w.pause(250 * time.Millisecond)
		}
		w.links["sjclhr"].SetCut(true)
		old.g = sjc
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); w.pause(time.Second) {
			m, n := after.asks(""), old.asks("")
			if m.Position != 1 || n.State == StateCalled || n.Position != 0 || n.Ticket != id {
				t.Fatalf("who came after is %+v, a copy of a used ticket %+v", m, n)
			}
			if after.in() || old.in() {
				t.Fatal("a fourth is inside")
			}
		}
	})
}

// Who signs in keeps what its ticket says of its first one, and an operator can release it then.
func TestAPersonIsReleased(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		cfg := memberRoom(1, false)
		cfg.Challenge.Kind = "work"
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		g.room.SetQueueAll(true)
		one := g.visitor()
		one.joins()
		one.asks("")
		bob := g.visitor()
		bob.joins()
		two := g.visitor()
		two.asks(two.joins().solve(t, ""))
		for range 30 {
			time.Sleep(time.Second)
			one.poll()
			two.poll()
			bob.asks("")
		}
		id := bob.asks("").Ticket
		bob.signIn("bob")
		if p := bob.polls(); p.Ticket != id {
			t.Fatalf("%+v, the ticket was %s", p, id)
		}
		if err := g.room.ReleaseTicket(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		for range 2 { // also with another device
			p := bob.polls()
			w, err := g.room.FindTicket(t.Context(), id)
			if err != nil || !w.Released || p.Position != 2 || w.Position != 2 {
				t.Errorf("%+v, %+v, %v", p, w, err)
			}
			bob = g.device("bob")
			bob.in()
		}
	})
}
