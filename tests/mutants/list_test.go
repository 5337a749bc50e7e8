package mutants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant is a fault, and what must find it.
type mutant struct {
	name    string
	file    string
	changes [][2]string // old and new lines
	run     []string    // arguments of the test
	seeds   []string    // with one of these seeds at least; nil is the default one
	finds   string      // begins what is said of a limit that is passed
	tests   string      // folder of the test; "" is tests/cluster, where finds and seeds count
}

func mutants() []mutant { return append(scenarios(), rules()...) }

// scenarios are the mutants that the scenarios of ./tests/cluster find, or one test of another package.
func scenarios() []mutant {
	return []mutant{
		{"no fence", "internal/store/nats.go", [][2]string{{
			"jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))",
			"jetstream.WithRetryAttempts(0))"}},
			[]string{"-run", "^(TestFreeze|TestCutLinks)$"}, nil, "", ""},
		{"take over without a write", "internal/counter/host.go", [][2]string{{
			"err = c.store(ctx, c.pool.Takeover(c.cfg.Boot()))",
			"_ = c.pool.Takeover(c.cfg.Boot())"}},
			[]string{"-run", "^TestATakeoverIsAWrite$"}, nil, "", "internal/counter"},
		{"a claim is told before it is written", "internal/counter/host.go", [][2]string{
			{"	c.deliver(now, nil)\n	if c.pool.IsCold(clk) {",
				"	c.deliver(now, nil)\n	if wr != nil {\n		c.deliver(c.pool.Confirm(clk))\n	}\n" +
					"	if c.pool.IsCold(clk) {"},
			{"		c.deliver(c.pool.Confirm(clk))\n		c.leftFor", "		c.leftFor"}},
			[]string{"-run", "^TestSlowWrites$"}, nil, "used tickets that did something again", ""},
		{"forget the standby", "internal/quota/ledger.go", [][2]string{{
			"		for _, k := range s.out {\n			upTo := k.put(", "		for _, k := range s.out[:0] {\n			upTo := k.put("}},
			[]string{"-run", "^TestLimitsKillHost$"}, nil, "passed at most", ""},
		{"what is not known counts as unused", "internal/quota/replicate.go", [][2]string{{
			"s.tables, s.lost, s.unwritten = nil, !by.known, by.moved",
			"s.tables, s.lost, s.unwritten = nil, false, by.moved"}},
			[]string{"-run", "^TestLimitsKillBoth$"}, nil, "passed at most", ""},
		{"a job noted before it is answered", "queue/outcome.go", [][2]string{{
			"	o := set.Handler.Deliver(d.flight, &f.job)\n",
			"	d.say(d.noting, func() note {\n" +
				"		return note{kind: noteDone, ref: f.ref, done: []int{f.ref.index()}}\n	})\n" +
				"	o := set.Handler.Deliver(d.flight, &f.job)\n"}},
			[]string{"-run", "^TestQueuesSilentTarget$"}, nil, "answered and not delivered", ""},
		{"an order key goes on before its outcome is written", "queue/outcome.go", [][2]string{{
			"		h.index.finish(f.ref)\n		return h.ends(",
			"		h.index.finish(f.ref)\n		h.index.release(f.ref)\n		return h.ends("}},
			[]string{"-run", "^TestQueuesOrderSlow$"}, nil, "begun again after a later job of the same order key", ""},
		{"a late job of a schedule counts as well", "queue/schedule.go", [][2]string{{
			"		return r <= t.job\n", "		return true\n"}},
			[]string{"-run", "^TestEachTimeHasOneJob$"}, nil, "", "queue"},
		{"a receipt counts for a later claim", "queue/leases.go", [][2]string{{
			"subtle.ConstantTimeCompare(s[:], c.secret[:]) == 1", "subtle.ConstantTimeCompare(s[:], c.secret[:]) < 2"}},
			[]string{"-run", "^TestQueuesPullKill$"}, nil, "acknowledged after the end of the lease", ""},
		{"a job is told before it is written", "queue/put.go", [][2]string{{
			"		case <-ctx.Done():\n			return fmt.Errorf(\"%w: %w\", ErrWrite, context.Cause(ctx))\n		}\n" +
				"		for k, i",
			"		default:\n		}\n		for k, i"}},
			[]string{"-run", "^TestQueuesSilentTarget$"}, nil, "answered and not delivered", ""},
		{"no fence between hosts of a queue", "queue/host.go", [][2]string{{
			"h.q.notes.Append(try, b, h.last)", "h.q.notes.Append(try, b, store.AnySequence)"}},
			[]string{"-run", "^(TestQueuesFreeze|TestQueuesCut|TestQueuesKillHost)$"}, nil, "", ""},
		{"the record says that all were called", "internal/counter/core.go", [][2]string{{
			"	c.pool.PutLine(part)\n", "	part.Frontier = part.Next\n	c.pool.PutLine(part)\n"}},
			[]string{"-run", "^TestKillHost$"}, nil, "tickets lost", ""},
		{"calls by chance", "internal/counter/calls.go", [][2]string{{
			"	if c.cfg.RandomOrder {\n		return c.line.Draw(", "	if true {\n		return c.line.Draw("}},
			[]string{"-run", "^TestThree$"}, nil, "overtaken by more than", ""},
		{"a takeover forgets what was done", "queue/host.go", [][2]string{{
			"			old.note(&notes[i])\n", "			_ = notes[i]\n"}},
			[]string{"-run", "^TestQueuesRollingRestart$"}, nil, "delivered again", ""},
		{"a worker lends itself a slot", "internal/slot/share.go", [][2]string{{
			"return s.granted - s.returned - s.opened }", "return s.granted - s.returned - s.opened + 1 }"}},
			[]string{"-run", "^TestThree$"}, nil, "", ""},
		{"a key lends what it does not have", "internal/limittable/lend.go", [][2]string{{
			"	free := l.Remaining\n", "	free := l.Remaining + 5\n"}},
			[]string{"-run", "^TestLimitsQuiet$"}, nil, "passed at most", ""},
	}
}

// walkSteps is within how many steps a walk must find a mutant. Chosen: the rarest, time that stands
// still, was found after 40 million.
const walkSteps = "200000000"

func walk(base string) []string {
	return []string{"-run", "^TestWalkKeepsThePromises$/^" + base + "$", "-walk-steps", walkSteps}
}

// rules are the mutants of the lending protocol that the tests of internal/slot find: one rule is
// broken in each.
func rules() []mutant {
	var all []mutant
	for _, r := range []struct {
		name, file string
		changes    [][2]string
		run        []string
	}{
		{"no presumed used", "build.go", [][2]string{{
			"	case s.Kind == Bucket:\n		return over\n",
			"	case true:\n		return over\n"}},
			walk("at_once")},
		{"no presumed used in a window", "build.go", [][2]string{{
			"	case s.Kind == Bucket:\n		return over\n",
			"	case true:\n		return over\n"}},
			walk("window")},
		{"the borrower times from the reply", "share.go", [][2]string{{
			"s.until = max(s.until, s.sent+",
			"s.until = max(s.until, clk+"}},
			walk("at_once")},
		{"a term runs from the answer", "pool.go", [][2]string{{
			"	term := p.par.Term - p.par.Drift.Stretch(clk-p.last)\n",
			"	term := p.par.Term\n"}, {
			"= p.last + p.par.Drift.Up(p.par.Term)\n	return a\n",
			"= clk + p.par.Drift.Up(p.par.Term)\n	return a\n"}},
			walk("at_once")},
		{"returns are changes", "build.go", [][2]string{{
			"min(x.Returned[i]-l.Returned[i], l.Lent(i))",
			"min(x.Returned[i], l.Lent(i))"}, {
			"	case x.Seq.Before(l.Seq):\n		return r, false, true\n",
			"	case l != nil:\n		return r, false, false\n	case x.Seq.Before(l.Seq):\n		return r, false, true\n"}},
			walk("at_once")},
		{"time ahead at a takeover", "pool.go", [][2]string{{
			"p.tauC, p.tauM = p.rec.Time, clk\n		for i",
			"p.tauC, p.tauM = p.rec.Time.Add(p.par.Term), clk\n		for i"}},
			walk("at_once")},
		{"estimates mix epochs", "share.go", [][2]string{{
			"	if a.Name.Epoch > s.est.Epoch {\n		s.settled = 0\n",
			"	if s.est.Known() && a.Name.Epoch > s.est.Epoch {\n		s.est.Epoch = a.Name.Epoch\n	}\n	if a.Name.Epoch > s.est.Epoch {\n		s.settled = 0\n"}},
			walk("at_once")},
		{"a bucket refills after a report", "build.go", [][2]string{{
			"	p.refill(r)\n	p.takeBack(clk, r)\n",
			"	p.takeBack(clk, r)\n"}, {
			"	p.evict(clk, r, syncs)\n	p.sure(r)\n",
			"	p.evict(clk, r, syncs)\n	p.sure(r)\n	p.refill(r)\n"}},
			walk("bucket")},
		{"a bucket ignores what is lent", "record.go", [][2]string{{
			"s.N - s.Tokens - r.lent(i)",
			"s.N - s.Tokens"}},
			walk("bucket")},
		{"a term is not clipped", "parent.go", [][2]string{{
			"max(p.up.until, sent+p.par.Drift.Down(a.Term))",
			"max(p.up.until, sent+p.par.Drift.Down(16*a.Term))"}},
			walk("two_levels,_drift")},
		{"a cold host tells the time", "parent.go", [][2]string{{
			"	return p.rec.Parent != nil && clk >= p.up.until\n",
			"	return false\n"}},
			walk("two_levels,_drift")},
		{"time stands still for too long", "pool.go", [][2]string{{
			"paused > p.par.Sigma || ",
			""}},
			walk("two_levels,_going_on")},
		{"an open takes the name back from its renewal", "items.go", [][2]string{{
			"	case named || p.gone.has(it.ID):\n",
			"	case true:\n		earlier = false\n	case named || p.gone.has(it.ID):\n"}},
			[]string{"-run", "^TestStaysRenewedBeforeTheyAreReported$"}},
		{"an unknown renewal takes any bucket", "items.go", [][2]string{{
			"		if c.End > from {\n			continue\n",
			"		if false {\n			continue\n"}},
			[]string{"-run", "^TestUnknownRenewalKeepsEntriesBeyondPasses$"}},
		{"an age is not stretched", "pool.go", [][2]string{{
			"p.par.Term - p.par.Drift.Stretch(clk-p.last)\n",
			"p.par.Term - (clk - p.last)\n"}},
			[]string{"-run", "^TestTermEndsBeforeAnyTakingBack$"}},
	} {
		all = append(all, mutant{name: "rule " + r.name, file: "internal/slot/" + r.file, changes: r.changes,
			run: r.run, tests: "internal/slot"})
	}
	return all
}

const root = "../.."

// mutate is the file with the changes.
func (m *mutant) mutate(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, c := range m.changes {
		if strings.Count(text, c[0]) != 1 {
			t.Fatalf("%s has these lines %d times, want once: the mutant must follow the code\n%s", m.file,
				strings.Count(text, c[0]), c[0])
		}
		text = strings.Replace(text, c[0], c[1], 1)
	}
	return text
}

// TestMutantsFit: each mutant changes the code of now.
func TestMutantsFit(t *testing.T) {
	const least = 28
	all := mutants()
	if len(all) < least {
		t.Errorf("%d mutants, want %d", len(all), least)
	}
	for i := range all {
		all[i].mutate(t)
	}
}
