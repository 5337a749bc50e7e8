package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// heardWithin is how long after a kill each visitor in the line should have received an answer: its
// polling interval, and one failed attempt. Chosen.
const heardWithin = 10 * time.Second

// These are the promises of a cluster while enough nodes are up and nobody kills one. Chosen: an
// election of the records takes 4 to 9 s, and a visitor that reached no node polls again within a
// minute.
const (
	servedWithin = 30 * time.Second // somebody is admitted, if there is a slot
	calmWithin   = 90 * time.Second // everybody in the line has received an answer
)

// A Summary is what the shop and the visitors saw during the whole run.
type Summary struct {
	took   time.Duration
	report report
	seen   finding

	more    [][2]string // names and values that only this play has seen
	cluster bool        // the room was a cluster
	world   bool        // the room was in several data centers
}

// add adds a line. A name that is "" continues the line above.
func (s *Summary) add(name, format string, args ...any) {
	s.more = append(s.more, [2]string{name, fmt.Sprintf(format, args...)})
}

// Faults returns the broken promises, one per line; nil when all held.
func (s *Summary) Faults() []string {
	var faults []string
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	fault(s.report.Over > 0, "%d visitors were let in over a limit", s.report.Over)
	fault(s.seen.Overtaken > 0, "%d visitors who asked on time were overtaken", s.seen.Overtaken)
	fault(s.seen.Lost > 0, "%d of %d places were lost", s.seen.Lost, s.seen.Tickets)
	fault(s.seen.SentBack > 0, "%d visitors were sent back from inside", s.seen.SentBack)
	fault(s.seen.Idle.Served > servedWithin, "nobody was let in for %v though enough nodes were up",
		s.seen.Idle.Served.Round(time.Second))
	for i := range s.seen.Kills {
		k := &s.seen.Kills[i]
		if k.who != "" {
			silent := k.waiting - k.again - k.lost
			fault(silent > 0 && s.seen.Idle.Calm > calmWithin,
				"%d visitors have had no answer since kill %d", silent, i+1)
			continue
		}
		silent := k.waiting - k.again - k.lost
		fault(k.down == 0, "the room did not come back after kill %d", i+1)
		fault(k.down > 0 && silent > 0 && k.age > k.down+heardWithin,
			"%d visitors had no answer for %v after kill %d", silent, heardWithin, i+1)
	}
	fault(s.report.Count == 0, "nobody was let in, so nothing was seen")
	fault(s.seen.Tickets == 0, "nobody had to wait, so nothing was seen of the line")
	return faults
}

// Write prints the figures, one per line, and the conclusion.
func (s *Summary) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	r, f := &s.report, &s.seen
	line("let in", "%d in %v", r.Count, s.took.Round(100*time.Millisecond))
	line("most inside at once", "%d of %d, as the shop saw it", r.Tight.n, r.Tight.of)
	line("most new in a minute", "%d of %d, as the shop saw it", r.Fresh.n, r.Fresh.of)
	line("let in over a limit", "%d", r.Over)
	overtaken, among := "overtaken", ""
	if s.cluster || s.world {
		overtaken = fmt.Sprintf("overtaken by over %v", clusterSlack)
	}
	if s.world {
		among = ", in their own city"
	}
	line(overtaken, "%d of %d with a ticket%s", f.Overtaken, f.Tickets, among)
	line("places lost", "%d of %d", f.Lost, f.Tickets)
	line("sent back from inside", "%d", f.SentBack)
	if s.cluster {
		line("nobody new, at most", "%.1f s, though somebody waited and a slot was free",
			f.Idle.Longest.Seconds())
	}
	if s.world {
		for _, l := range s.more {
			line(l[0], "%s", l[1])
		}
	} else {
		line("kills", "%d", len(f.Kills))
	}
	for i := range f.Kills {
		k := &f.Kills[i]
		if k.who != "" {
			line("", "%s: nobody new for %.1f s; %s", k.who, k.idle.Seconds(), k.places())
			continue
		}
		line("", "%s; %s", k.outage(), k.places())
	}
	if f.First != "" {
		line("seen first", "%s", f.First)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	faults := s.Faults()
	for _, fault := range faults {
		if _, err := fmt.Fprintf(w, "broken: %s\n", fault); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, "never over, nobody overtaken, no place lost")
	return err
}
