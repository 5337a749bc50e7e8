package counter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

// A checker checks a draw only with what docs/events.md says and the page shows, and with nothing
// of this program: the hash from before the start, and "seed/first/end" from after it.
type checker struct {
	seed       []byte
	first, end uint64
	width      uint
}

func newChecker(hash, shown string) (*checker, error) {
	parts := strings.Split(shown, "/")
	if len(parts) != 3 {
		return nil, errors.New("not seed/first/end: " + shown)
	}
	c := &checker{}
	var err error
	if c.seed, err = hex.DecodeString(parts[0]); err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(c.seed); hex.EncodeToString(sum[:]) != hash {
		return nil, errors.New("the seed is not the one whose hash was shown")
	}
	if _, err := fmt.Sscan(parts[1]+" "+parts[2], &c.first, &c.end); err != nil {
		return nil, err
	}
	c.width = uint(max(8, bits.Len64(c.end-c.first-1)))
	c.width += c.width % 2
	return c, nil
}

// rank returns the ticket whose place a ticket has.
func (c *checker) rank(ticket uint64) uint64 {
	x := ticket - c.first
	for {
		mask := uint64(1)<<(c.width/2) - 1
		left, right := x>>(c.width/2), x&mask
		for i := range 10 {
			block := append([]byte{}, c.seed...)
			block = append(block, byte(i))
			block = binary.BigEndian.AppendUint64(block, right)
			sum := sha256.Sum256(block)
			left, right = right, left^binary.BigEndian.Uint64(sum[:8])&mask
		}
		if x = left<<(c.width/2) | right; x < c.end-c.first {
			return c.first + x
		}
	}
}

// With the text of the page and the documentation alone, the place of each visitor in a draw of
// 100,000 can be computed, and each place has one visitor.
func TestADrawOf100000IsChecked(t *testing.T) {
	if testing.Short() {
		return // long, and nothing for the race detector: make all runs it
	}
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		c := host(t, "a", s, 1)
		c.mu.Lock()
		c.cfg.Line.MaxWaiting = 200_000
		c.mu.Unlock()
		c.Hold(true)
		follow := func(p Phase) string {
			t.Helper()
			if err := c.SetPlan(t.Context(), Plan{Event: "sale", Start: 1000, Phase: p}); err != nil {
				t.Fatal(err)
			}
			return c.State(0, 0).Draw.Text()
		}
		for range 10 {
			join(t, c)
		}
		hash := follow(Announced)
		if again := follow(Prequeuing); len(hash) != 64 || again != hash {
			t.Fatalf("the hash changes: %q, %q", hash, again)
		}
		var tickets []uint64
		for range 100_000 {
			tickets = append(tickets, join(t, c).Number)
		}
		shown := follow(Started)
		late := join(t, c)
		k, err := newChecker(hash, shown)
		if err != nil {
			t.Fatal(err)
		}
		if k.first != tickets[0] || k.end != tickets[len(tickets)-1]+1 || late.Number < k.end {
			t.Fatalf("drawn from %d to %d, tickets %d to %d, late %d", k.first, k.end, tickets[0],
				tickets[len(tickets)-1], late.Number)
		}
		taken := make([]bool, len(tickets)+1)
		for _, n := range tickets {
			p, err := c.Poll(t.Context(), lifeOf(c), n, 0)
			want := 10 + int64(k.rank(n)-k.first) + 1
			if err != nil || p.Position != want || taken[want-10] {
				t.Fatalf("ticket %d is at %d, by the check at %d, taken %v: %v", n, p.Position, want,
					taken[want-10], err)
			}
			taken[want-10] = true
		}
		if p, err := c.Poll(t.Context(), lifeOf(c), late.Number, 0); err != nil || p.Position != 100_011 {
			t.Errorf("who came late is at %d, %v", p.Position, err)
		}
	})
}

// A visitor drawn for one event keeps that place, whichever event's prequeue began first. No two
// visitors have the same place, and each is called.
func TestDrawsThatOverlap(t *testing.T) {
	for _, first := range []string{"long", "short"} {
		synctest.Test(t, func(t *testing.T) {
			c := host(t, "a", &store.Memory{}, 1)
			c.Hold(true)
			follow := func(event string, start int64, p Phase) {
				t.Helper()
				if err := c.SetPlan(t.Context(), Plan{Event: event, Start: start, Phase: p}); err != nil {
					t.Fatal(err)
				}
			}
			var tickets []uint64
			some := func() {
				for range 40 {
					tickets = append(tickets, join(t, c).Number)
				}
			}
			follow("long", 1000, Prequeuing)
			some()
			follow("short", 990, Prequeuing)
			some()
			follow(first, map[string]int64{"long": 1000, "short": 990}[first], Started)
			some()
			where := func() (at map[uint64]int64) {
				at = map[uint64]int64{}
				taken := map[int64]bool{}
				for _, n := range tickets {
					p, err := c.Poll(t.Context(), lifeOf(c), n, 0)
					if err != nil || p.Status != slot.TicketWaiting || taken[p.Position] {
						t.Fatalf("ticket %d is %v at %d, taken %v: %v", n, p.Status, p.Position,
							taken[p.Position], err)
					}
					taken[p.Position], at[n] = true, p.Position
				}
				return at
			}
			before := where()
			follow("short", 990, Started)
			follow("long", 1000, Started)
			for n, at := range where() {
				if drawn := n < tickets[80]; drawn && first == "long" && at != before[n] {
					t.Fatalf("ticket %d was drawn to be at %d and is at %d", n, before[n], at)
				}
			}
		})
	}
}

// A draw is still shown after its event, so that visitors that still wait can check it: alone,
// beside the next draw, and at the next host.
func TestADrawIsToldAfterItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		c := host(t, "a", s, 1)
		c.Hold(true)
		follow := func(p Plan) *status.Draw {
			t.Helper()
			if err := c.SetPlan(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			return c.State(0, 0).Draw
		}
		follow(Plan{Event: "sale", Start: 1000, Phase: Prequeuing})
		for range 20 {
			join(t, c)
		}
		drawn := follow(Plan{Event: "sale", Start: 1000, Phase: Started})
		if drawn.Last != nil || len(drawn.Seed) != 64 {
			t.Fatalf("%+v", drawn)
		}
		if over := follow(Plan{}); over == nil || over.Text() != drawn.Text() {
			t.Errorf("after the event %+v", over)
		}
		next := follow(Plan{Event: "sale@2", Start: 2000})
		if next.Event != "sale@2" || next.Seed != "" || next.Last == nil || next.Last.Text() != drawn.Text() {
			t.Errorf("beside the next %+v, last %+v", next, next.Last)
		}
		c = host(t, "b", s, 2)
		if last := c.State(0, 0).Draw; last == nil || last.Text() != drawn.Text() {
			t.Errorf("of the next host %+v", last)
		}
		if follow(Plan{Event: "sale@2", Start: 2000, Phase: Prequeuing}).Last.Text() != drawn.Text() {
			t.Error("forgotten in the next prequeue")
		}
	})
}

// While the store rejects writes, no answer contains a place by rank, a number behind the draw, or
// the seed.
func TestADrawIsToldWhenItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refusing{}
		plan := Plan{Event: "sale", Start: 1000, Phase: Prequeuing}
		c := host(t, "a", s, 1)
		c.Hold(true)
		if err := c.SetPlan(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		var tickets []uint64
		for range 20 {
			tickets = append(tickets, join(t, c).Number)
		}
		time.Sleep(time.Second)
		if _, err := c.Poll(t.Context(), lifeOf(c), tickets[0], 0); err != nil {
			t.Fatal(err)
		}
		s.down.Store(true)
		plan.Phase = Started
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		if err := c.SetPlan(ctx, plan); err == nil {
			t.Fatal("followed, and nothing is written")
		}
		for _, n := range tickets {
			if p, err := c.Poll(t.Context(), lifeOf(c), n, 0); err == nil {
				t.Fatalf("ticket %d is told %+v", n, p)
			}
		}
		if _, err := c.Join(t.Context(), 0, time.Minute, 0); err == nil {
			t.Error("a number is told")
		}
		if d := c.State(0, 0).Draw; d.Finished || d.Seed != "" {
			t.Errorf("the seed is told: %+v", d)
		}
		s.down.Store(false)
		time.Sleep(time.Second)
		if err := c.SetPlan(t.Context(), plan); err != nil || !c.State(0, 0).Draw.Finished {
			t.Errorf("not drawn once the store writes: %v", err)
		}
	})
}

// The crash of a host before or after the start changes neither the seed nor any place. A ticket
// that polls again is not drawn again.
func TestADrawOutlivesItsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		plan := Plan{Event: "sale", Start: 1000, Phase: Prequeuing}
		c := host(t, "a", s, 1)
		c.Hold(true)
		if err := c.SetPlan(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		hash := c.State(0, 0).Draw.Hash
		var tickets []uint64
		for range 40 {
			tickets = append(tickets, join(t, c).Number)
		}
		time.Sleep(time.Second)
		life := lifeOf(c)
		places := func(c *Counter) (all []int64) {
			t.Helper()
			time.Sleep(4 * time.Second)
			for range 2 {
				all = nil
				for _, n := range tickets {
					p, err := c.Poll(t.Context(), life, n, 0)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, p.Position)
				}
				time.Sleep(6 * time.Second) // unused numbers do not count any more
			}
			return all
		}
		c = host(t, "b", s, 1)
		c.Hold(true)
		plan.Phase = Started
		if err := c.SetPlan(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		got := c.State(0, 0).Draw
		if got.Hash != hash || !got.Finished {
			t.Fatalf("%+v, want the hash %s", got, hash)
		}
		k, err := newChecker(hash, got.Text())
		if err != nil {
			t.Fatal(err)
		}
		before := places(c)
		for i, n := range tickets {
			ahead := int64(1)
			for _, m := range tickets {
				if k.rank(m) < k.rank(n) {
					ahead++
				}
			}
			if before[i] != ahead {
				t.Fatalf("ticket %d is at %d, by the check at %d", n, before[i], ahead)
			}
		}
		time.Sleep(time.Second)
		c = host(t, "c", s, 1)
		c.Hold(true)
		if err := c.SetPlan(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		after := places(c)
		if fmt.Sprint(after) != fmt.Sprint(before) || c.State(0, 0).Draw.Text() != got.Text() {
			t.Fatalf("after a kill %v, before %v", after, before)
		}
		for _, n := range tickets { // all are present
			if _, err := c.Poll(t.Context(), life, n, 0); err != nil {
				t.Fatal(err)
			}
		}
		c.Hold(false)
		first := slot.TicketUnknown
		for range 30 {
			for i, n := range tickets {
				p, err := c.Poll(t.Context(), life, n, 0)
				if err == nil && p.Status == slot.TicketCalled && first != p.Status {
					first = p.Status
					if before[i] != 1 {
						t.Errorf("called first: ticket %d, who is at %d", n, before[i])
					}
				}
			}
			time.Sleep(300 * time.Millisecond)
		}
		if first != slot.TicketCalled {
			t.Error("nobody is called")
		}
	})
}

// A prequeue is broken off, for example because its date was wrong. Visitors that joined in it and
// still wait when the right one begins are ahead of it and stay ahead.
func TestADrawThatIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 1)
		c.Hold(true)
		follow := func(start int64, p Phase) *status.Draw {
			t.Helper()
			if err := c.SetPlan(t.Context(), Plan{Event: "sale", Start: start, Phase: p}); err != nil {
				t.Fatal(err)
			}
			return c.State(0, 0).Draw
		}
		hash := follow(1000, Prequeuing).Hash
		for range 20 {
			join(t, c)
		}
		if again := follow(2000, Announced).Hash; again != hash {
			t.Error("another seed is told")
		}
		follow(1000, Prequeuing) // a clock was behind for a moment
		if again := follow(2000, Announced).Hash; again != hash {
			t.Error("another seed is told")
		}
		time.Sleep(putOff)
		first := join(t, c).Number + 1
		follow(2000, Prequeuing)
		for range 20 {
			join(t, c)
		}
		if d := follow(2000, Started); d.Hash != hash || d.From != first || d.To != first+20 {
			t.Errorf("drawn are %d to %d, and not the 20 from %d on", d.From, d.To, first)
		}
	})
}

// A host whose clock is behind for a moment, so that the prequeue has not begun for it, removes
// nobody from the prequeue.
func TestADrawOfAClockThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		c := host(t, "a", s, 1)
		c.Hold(true)
		plan := Plan{Event: "sale", Start: 1000}
		follow := func(p Phase) *status.Draw {
			t.Helper()
			plan.Phase = p
			if err := c.SetPlan(t.Context(), plan); err != nil {
				t.Fatal(err)
			}
			return c.State(0, 0).Draw
		}
		follow(Prequeuing)
		first := join(t, c).Number
		c = host(t, "b", s, 2)
		c.Hold(true)
		follow(Announced)
		time.Sleep(putOff / 2)
		join(t, c)
		follow(Prequeuing)
		if d := follow(Started); d.From != first {
			t.Errorf("drawn are those from %d on, and %d was the first", d.From, first)
		}
	})
}

// A network with many tickets has few chances, also if a host dies before the draw: it asks again for
// the networks of those who wait. A host that dies after it changes no place.
func TestAWeighedDrawOutlivesItsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, plan := &store.Memory{}, Plan{Event: "sale", Start: 1000, Phase: Prequeuing}
		next := func(name string) *Counter {
			t.Helper()
			c := host(t, name, s, 1)
			set := c.cfg.Settings
			set.DrawWeight = 3
			c.Hold(true)
			if err := errors.Join(c.Reconfigure(t.Context(), set), c.SetPlan(t.Context(), plan)); err != nil {
				t.Fatal(err)
			}
			return c
		}
		c := next("a")
		life := lifeOf(c)
		network := map[uint64]uint32{}
		places := func() (at []int64) {
			t.Helper()
			time.Sleep(10 * time.Second) // unused numbers do not count any more
			for n := range uint64(200) {
				of := network[n]
				if of == 0 {
					continue
				}
				for range 2 { // the network is asked for once
					p, err := c.Poll(t.Context(), life, n, 0)
					if err != nil || p.Status != slot.TicketWaiting {
						t.Fatalf("ticket %d is %v: %v", n, p.Status, err)
					}
					if p.AsksNetwork {
						err = c.SetNetwork(t.Context(), life, n, of)
					}
					if at = append(at, p.Position); err != nil {
						t.Fatal(err)
					}
				}
				if p, err := c.Poll(t.Context(), life, n, 0); err != nil || p.AsksNetwork {
					t.Fatalf("ticket %d: its network is asked for again, or %v", n, err)
				}
			}
			return at
		}
		for i := range uint32(90) {
			network[join(t, c).Number] = 2 + max(i, 60) // 61 of one network, 29 of others
		}
		places()
		c = next("b")
		places()
		plan.Phase = Started
		if err := c.SetPlan(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		drawn, weights := c.State(0, 0).Draw.Text(), c.draws[0].Weights
		lone := slot.NewLines() // what 61 tickets of one network have
		lone.SetDrawWeight(3)
		from := c.draws[0].From
		for n := uint64(1); n < c.draws[0].To; n++ {
			lone.Join(0, 0, time.Second, time.Minute)
			if network[n] == 62 {
				lone.SetNetwork(n, 1)
			}
		}
		if want := lone.Ordinary().Weights(from, c.draws[0].To); weights != want || want == "" ||
			strings.Count(drawn, "/") != 3 {
			t.Fatalf("the weights are %x, want %x; %s", weights, want, drawn)
		}
		before := places()
		c = next("c")
		if after := places(); fmt.Sprint(after) != fmt.Sprint(before) || c.State(0, 0).Draw.Text() != drawn {
			t.Errorf("after a kill\n%v, before\n%v", after, before)
		}
		join(t, c)
		if p := join(t, c); p.AsksNetwork {
			t.Error("asked for a network after the draw")
		}
	})
}

// A record keeps the weights of the last draw, and of those whose tickets wait. Those of all draws that it
// keeps would be more than a message carries.
func TestWeightsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 1)
		c.mu.Lock()
		c.cfg.DrawWeight = 1
		c.setLanes()
		c.mu.Unlock()
		for event := range int64(4) {
			c.Hold(true)
			plan, tickets := Plan{Event: fmt.Sprint(event), Start: 1000 + event}, []uint64{}
			for plan.Phase = Announced; plan.Phase <= Started; plan.Phase++ {
				if err := c.SetPlan(t.Context(), plan); err != nil {
					t.Fatal(err)
				}
				for range 3 * int(plan.Phase%2) { // in the prequeue
					n := join(t, c).Number
					if err := c.SetNetwork(t.Context(), lifeOf(c), n, 7); err != nil {
						t.Fatal(err)
					}
					tickets = append(tickets, n)
				}
			}
			if d := c.pool.Record().Draws; d[len(d)-1].Weights == "" {
				t.Error("all tickets weigh the same")
			}
			late := join(t, c).Number
			for _, n := range append(tickets, late) {
				if n == late { // the line moves on to it
					c.Hold(false)
					if _, err := c.Poll(t.Context(), lifeOf(c), n, 0); err != nil {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Second)
				}
				if err := c.Leave(t.Context(), lifeOf(c), n, 0); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Second)
		}
		for i, d := range c.pool.Record().Draws {
			if (d.Weights != "") != (i == 3) {
				t.Errorf("%d bytes of weights are kept of the draw %s", len(d.Weights), d.Event)
			}
		}
	})
}
