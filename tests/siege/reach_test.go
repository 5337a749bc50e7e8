package siege

import (
	"fmt"
	"strings"
	"time"

	room "github.com/headgate/headgate/tests/crowd"
)

// A reach is what a scenario must reach.
type reach struct {
	network float64 // % of the slots handed out while people wait that one network may get
	all     float64 // the same of all attackers together; 100 is not judged
	first   int     // newcomers of one network that join_limit treats as any others, on top of that
	kept    float64 // % of the room that people who wait may be kept from; 100 is not judged
	served  float64 // % of honest people that must be served
	right   float64 // % of people whose first expected wait must be right; 0 is not judged
	places  int     // of the first places that are taken, how many may be the attackers'; 0 is not judged
	empty   float64 // seconds that a slot may stand empty on average, while somebody waits; 0 is not judged
}

// oneNetwork is what the default settings promise against one network: see docs/security.md. It gets a
// tenth of the calls, and before that its first newcomers of a minute are treated as any others: 60 of
// an address, 120 of the 256 addresses around it. What of the room people are kept from is measured:
// a visit that began while nobody waited, and goes on, is not ended.
func oneNetwork() reach { return reach{network: 10, all: 10, first: 60, kept: 100, served: 95} }

// ofNetworks is for attackers with many networks: one gets no more than its share, and what all of
// them get is measured.
func ofNetworks() reach { return reach{network: 10, all: 100, kept: 100} }

// ghosts are tickets that nobody will claim.
func ghosts() reach {
	return reach{network: 10, all: 10, kept: 100, served: 95, right: 80, empty: 1.5}
}

// mostOff is how far the median of expected waits may be off in every scenario, in %.
const mostOff = 25

// mostPoll is how long an honest poll may take at p99 under a flood: 50 ms on a quiet machine. A
// busy machine is slow without headgate too: there, ten times what a poll took without a flood or
// a request to the origin itself in the same seconds, or twice the slowest of these.
func mostPoll(quiet time.Duration, direct []time.Duration) time.Duration {
	return max(50*time.Millisecond, 10*quiet, 10*quantile(direct, 0.99), 2*quantile(direct, 1))
}

// mostHeap returns the most that may be live at the end of a flood, in MB, by the most of its first
// half: as much, a quarter more for what comes and goes, and 16 MB, by which it grows without any
// attack.
func mostHeap(half float64) float64 { return 1.25*half + 16 }

// A measure is one line of the scoreboard.
type measure struct {
	name    string
	bound   float64
	least   bool // bound is the least that will do, not the most
	judged  bool
	reached float64
	note    string
}

func (m *measure) ok() bool {
	switch {
	case !m.judged:
		return true
	case m.least:
		return m.reached >= m.bound
	}
	return m.reached <= m.bound
}

func (m *measure) limit() string {
	switch {
	case !m.judged:
		return "measured"
	case m.least:
		return fmt.Sprintf("≥ %.4g", m.bound)
	}
	return fmt.Sprintf("≤ %.4g", m.bound)
}

// String is a row: the measure, what is to be reached, what was, and a note.
func (m measure) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s |", m.name, m.limit(), m.cell(), m.note)
}

// cell is bold if the bound is not reached.
func (m *measure) cell() string {
	if !m.ok() {
		return fmt.Sprintf("**%.3g**", m.reached)
	}
	return fmt.Sprintf("%.3g", m.reached)
}

// fewTold is the number of people that a median says something of: 5 % of 400, or all of 20.
// Behind attackers that never leave, two or three come in by chance.
const fewTold = 20

// measures holds a record against what is to be reached.
func (r *record) measures(to reach, quiet time.Duration) []measure {
	h := r.handedOut()
	total := h.honest + h.attackers
	off, right, judged, told := r.expected()
	poll, direct := quantile(r.polls, 0.99), quantile(r.direct, 0.99)
	first, half, last := r.heap()
	s, looks := r.people.Summary(), room.Watch{Samples: r.looks}
	besides := percent(to.first, total)
	errors := 0
	for _, n := range s.Errors {
		errors += n
	}
	hostile, places := r.firstPlaces()
	return []measure{
		{"first places of attackers", float64(to.places), false, to.places > 0, float64(hostile),
			fmt.Sprintf("of %d; %d of %d challenges solved, by people %d of %d", places, r.solved, r.issued,
				s.Solutions, s.Challenges)},
		{"slots of one network, %", to.network + besides, false, total >= 20, percent(h.network, total),
			fmt.Sprintf("%d of %d while people waited", h.network, total)},
		{"slots of all attackers, %", to.all + besides, false, total >= 20 && to.all < 100,
			percent(h.attackers, total),
			fmt.Sprintf("%d; %d sent", h.attackers, r.sent)},
		{"room kept from people who wait, %", to.kept, false, to.kept < 100, r.kept(), ""},
		{"honest people served, %", to.served, true, to.served > 0, r.served(),
			fmt.Sprintf("of %d", s.Visitors)},
		{"expected wait off, median %", mostOff, false, judged >= fewTold, off, told},
		{"expected wait right, %", to.right, true, to.right > 0, right, ""},
		{"slot empty, mean s", to.empty, false, to.empty > 0, r.empty(), ""},
		{"poll p99, ms", ms(mostPoll(quiet, r.direct)), false, true, ms(poll),
			fmt.Sprintf("%.1f without flood, origin %.1f", ms(quiet), ms(direct))},
		{"live heap, MB", mostHeap(half), false, true, last,
			fmt.Sprintf("%.0f at the beginning, %.0f at most in the first half", first, half)},
		{"inside at once", float64(r.slots), false, true, float64(looks.MostActive()), ""},
		{"honest people overtaken", 0, false, false, float64(s.Order.Overtaken),
			s.Order.Example},
		{"places shown that rose", 0, false, true, float64(s.RisenPlace), ""},
		{"errors of honest people", 0, false, true, float64(errors), fmt.Sprint(s.Errors)},
		{"networks served by one jar", 0, false, false, float64(h.copies), ""},
		{"attackers' requests at the origin at once", 0, false, false, float64(r.held()), ""},
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// A line is one scenario of the scoreboard.
type line struct {
	scenario string
	measures []measure
}

// scoreboard prints one row for each scenario in Markdown; what does not reach its bound is bold.
func scoreboard(lines []line) string {
	var b strings.Builder
	for i, l := range lines {
		if i == 0 {
			b.WriteString("| scenario |")
			for _, m := range l.measures {
				fmt.Fprintf(&b, " %s |", m.name)
			}
			b.WriteString("\n|---|" + strings.Repeat("---:|", len(l.measures)) + "\n")
		}
		fmt.Fprintf(&b, "| %s |", l.scenario)
		for _, m := range l.measures {
			b.WriteString(" " + m.cell() + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
