package places

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/sim/report"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// The rush: people and the attacker's clients come within the same ten seconds, and each second ten are
// called.
const (
	people    = 1000
	clients   = 10_000
	places    = 1000
	arrive    = 10 * time.Second
	perMinute = 600
	slots     = 5000
	step      = 100 * time.Millisecond
	hold      = 10 * time.Minute
	accounts  = 100 // of the attacker, where the site knows its people

	tries     = 256                   // derivations of a solution, on average
	iteration = 240 * time.Nanosecond // of PBKDF2, on one core of a server
	phone     = 5                     // times slower than that core
)

// A defense is what the room of a row has.
type defense struct {
	name               string
	network, work      bool
	identity, required bool
}

// A visitor is a person's browser, or a client of the attacker.
type visitor struct {
	attacker bool
	account  int // whom the site takes it for, 0: for nobody
	addr     netip.Addr
	at       time.Duration // of its next request
	number   uint64        // of its ticket, 0: none
	joined   time.Duration
	work     uint64 // of its challenge, 0: none
	left     int64  // iterations until it is solved
}

// A rush is one run.
type rush struct {
	t      *testing.T
	of     defense
	rng    *rand.Rand
	desk   *counter.Core
	joins  *exclude.Joins
	gate   challenge.Gate
	all    []*visitor
	person map[int]uint64 // the ticket of each account, by which the host knows it
	budget int64          // iterations of the attacker in a step
	ours   int            // places of the attacker
	theirs int            // of people
	solved int            // by the attacker
	made   float64        // solutions that the attacker's computing is worth on average
}

func newRush(t *testing.T, of defense, networks, cores int) *rush {
	t.Helper()
	x := &rush{t: t, of: of, person: map[int]uint64{},
		rng:    rand.New(rand.NewPCG(25, uint64(networks)<<16|uint64(cores))),
		budget: int64(cores) * int64(step/iteration)}
	limits := []slot.Limit{{Kind: slot.AtOnce, N: slots, Per: time.Hour},
		{Kind: slot.PerWindow, N: perMinute, Per: time.Minute}}
	set := counter.Settings{Active: limits[0], New: limits[1], Spread: true, Line: counter.LineConfig{
		MaxWaiting: 1 << 20, PollMin: time.Second, PollMax: 10 * time.Second, Hold: hold}}
	set.Lanes = append(set.Lanes, slot.NetworkLane())
	joins := exclude.JoinLimit{}
	if of.network {
		joins.Amount = 60
	}
	if of.work {
		set.Lanes = append(set.Lanes, challenge.Lane())
	}
	x.joins = exclude.NewJoins(joins)
	x.desk = counter.NewCore(counter.Config{Room: "shop", Host: "a", Random: x.rng.Float64, Settings: set},
		slot.NewRecord(1, nil, limits...), true, func() {})
	x.desk.TakeOver(time.Hour)
	if err := x.desk.Begin(time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range people + clients {
		v := &visitor{attacker: i >= people, at: time.Hour + time.Duration(x.rng.Int64N(int64(arrive)))}
		a, b := i, byte(64) // a network of its own for each person
		if v.attacker {
			a, b = i%networks, 32
		}
		v.addr = netip.AddrFrom4([4]byte{b, byte(a >> 8), byte(a), 1})
		if of.identity && i < people+accounts || of.required {
			v.account = min(i, people+i%accounts) + 1
		}
		x.all = append(x.all, v)
	}
	return x
}

// join makes a visitor a newcomer, whose challenge was not solved if it had one. All clients of an account
// have one ticket, which needs no solution.
func (x *rush) join(v *visitor, clk time.Duration) {
	if v.account > 0 && x.person[v.account] > 0 {
		v.number, v.at = x.person[v.account], clk+step
		return
	}
	lane, again := uint64(0), uint64(0)
	if over, _ := x.joins.Over(v.addr, clk); over {
		lane = slot.NetworkLane().ID()
	} else if v.work > 0 {
		var why ticket.Kind
		asked := &challenge.Config{Kind: challenge.Kind}
		if again, why = asked.Again(&ticket.Token{Work: v.work}, false, time.Time{}); why == ticket.Unsolved {
			lane = challenge.Lane().ID()
		}
	}
	p := x.desk.JoinLane(clk, lane, hold)
	v.number, v.work, v.joined = p.Number, 0, clk
	if v.account > 0 {
		x.person[v.account] = p.Number
	} else if x.of.work && slot.LaneIndex(p.Number) == 0 {
		v.work = x.gate.Draw(time.Unix(0, 0).Add(clk), p.Waiting, perMinute,
			x.joins.Rate(v.addr, clk), x.joins.Limit.Amount, again)
		v.left = int64(x.rng.ExpFloat64() * tries * float64(challenge.Cost(v.work)))
	}
	v.at = clk + max(p.PollAfter, step)
}

// ask lets a visitor do its next request.
func (x *rush) ask(v *visitor, clk time.Duration) (in bool) {
	if v.number == 0 {
		x.join(v, clk)
		return false
	}
	poll := x.desk.Poll
	if v.work > 0 && v.left > 0 {
		poll = x.desk.PollUnproven
	}
	p := poll(clk, v.number)
	v.at = clk + max(p.PollAfter, step)
	switch p.Status {
	case slot.TicketCalled:
		return x.desk.Claim(clk, v.number, false)
	case slot.TicketWaiting, slot.TicketLate:
		v.work = 0
	case slot.TicketUsed: // another client of the account is inside: this one shares the session
		v.at = time.Duration(1<<63 - 1)
	case slot.TicketProvisional:
	default:
		x.join(v, clk)
	}
	return false
}

// compute lets a step of computing pass. A person's browser solves its own challenge. The attacker
// knows what can still be done in time, begins with the earliest, and loses nothing by changes.
func (x *rush) compute(clk time.Duration) {
	var mine []*visitor
	for _, v := range x.all {
		switch {
		case v.work == 0 || v.left <= 0:
		case !v.attacker:
			v.left -= int64(step / iteration / phone)
		case clk-v.joined < slot.ProvisionalFor-time.Second:
			mine = append(mine, v)
		}
	}
	slices.SortFunc(mine, func(a, b *visitor) int { return cmp.Compare(a.joined, b.joined) })
	budget := x.budget
	for _, v := range mine {
		n := min(v.left, budget, int64(step/iteration)) // one ticket is no work for two cores
		v.left, budget = v.left-n, budget-n
		x.made += float64(n) / tries / float64(challenge.Cost(v.work))
		if v.left <= 0 {
			x.solved++
		}
	}
}

func (x *rush) run() (share float64) {
	for clk := time.Hour; x.ours+x.theirs < places; clk += step {
		if clk > 2*time.Hour {
			x.t.Fatalf("%+v: only %d and %d come in", x.of, x.ours, x.theirs)
		}
		x.desk.CallNext(clk)
		if _, wr := x.desk.Build(clk, true); wr != nil {
			x.desk.Stored(clk)
		}
		x.compute(clk)
		x.all = slices.DeleteFunc(x.all, func(v *visitor) bool {
			if v.at > clk || !x.ask(v, clk) || x.ours+x.theirs == places {
				return false
			}
			if v.attacker {
				x.ours++
			} else {
				x.theirs++
			}
			return true
		})
	}
	return float64(x.ours) / places
}

var picture = flag.String("picture", "", "draw the shares into this SVG file")

// TestPlacesOfAnAttacker measures the table of docs/challenge.md, which has the same figures.
func TestPlacesOfAnAttacker(t *testing.T) {
	attackers := []int{50, 5000}
	if testing.Short() {
		attackers = attackers[:1]
	}
	var table strings.Builder
	var plots []report.Series
	for _, networks := range attackers {
		for _, of := range []defense{{name: "nothing"}, {name: "`join_limit`", network: true},
			{name: "work", work: true}, {name: "work and `join_limit`", network: true, work: true},
			{name: "work and `identity`", work: true, identity: true},
			{name: "work and `identity` with `required`", work: true, identity: true, required: true}} {
			fmt.Fprintf(&table, "| %d | %s |", networks, of.name)
			plot := report.Series{Name: fmt.Sprintf("%s, %d networks", strings.ReplaceAll(of.name, "`", ""), networks)}
			var x *rush
			var share float64
			for _, cores := range []int{1, 2, 4, 8, 16, 256} {
				if x == nil || of.work && !of.required { // otherwise cores change nothing
					x = newRush(t, of, networks, cores)
					share = 100 * x.run()
				}
				if most := 1.1*x.made + 10; float64(x.solved) > most {
					t.Errorf("%d solutions, and work for %.0f: some tickets are cheaper than they cost", x.solved, x.made)
				}
				if of.required && x.ours > accounts {
					t.Errorf("%d places for %d accounts", x.ours, accounts)
				}
				if cores <= 16 {
					plot.Add(float64(cores), share)
				}
				if cores != 2 && cores != 8 {
					fmt.Fprintf(&table, " %.0f %% |", share)
				}
				t.Logf("%s, %d networks, %d cores: %d solutions, work for %.0f, %d places",
					of.name, networks, cores, x.solved, x.made, x.ours)
			}
			if of.network && (of.work || networks == 50) || of.required && networks == 50 {
				plots = append(plots, plot)
			}
			table.WriteString("\n")
		}
	}
	b, err := os.ReadFile("../../docs/challenge.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), table.String()) {
		t.Errorf("docs/challenge.md has other figures than these:\n%s", table.String())
	}
	if *picture != "" {
		draw(t, plots)
	}
}

func draw(t *testing.T, plots []report.Series) {
	f, err := os.Create(*picture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := report.SVG(f, report.Figure{ID: "places", Title: "The first 1,000 places", XLabel: "cores of the attacker",
		YLabel: "places of the attacker, %", Series: plots,
		Note: "1,000 people and 10,000 clients of one attacker come within ten seconds."}); err != nil {
		t.Error(err)
	}
}
