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
	run     []string    // arguments of the test of ./tests/cluster
	seeds   []string    // with one of these seeds at least; nil is the default one
	finds   string      // begins what is said of a limit that is passed
}

func mutants() []mutant {
	return []mutant{
		{"no fence", "internal/store/nats.go", [][2]string{{
			"jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))",
			"jetstream.WithRetryAttempts(0))"}},
			[]string{"-run", "^(TestFreeze|TestCutLinks)$"}, nil, ""},
		{"take over without a write", "internal/counter/takeover.go", [][2]string{{
			"err = c.store(ctx, c.pool.Takeover(c.cfg.Boot()))",
			"_ = c.pool.Takeover(c.cfg.Boot())"}},
			[]string{"-run", "^(TestFreeze|TestCutLinks|TestKillHost)$"}, nil, ""},
		{"a claim is told before it is written", "internal/counter/counter.go", [][2]string{
			{"	c.deliver(now, nil)\n	if c.pool.IsCold(clk) {",
				"	c.deliver(now, nil)\n	if wr != nil {\n		c.deliver(c.pool.Confirm(clk))\n	}\n" +
					"	if c.pool.IsCold(clk) {"},
			{"		c.deliver(c.pool.Confirm(clk))\n		c.leftFor", "		c.leftFor"}},
			[]string{"-run", "^TestSlowWrites$"}, nil, "used tickets that did something again"},
		{"forget the standby", "internal/quota/ledger.go", [][2]string{{
			"		for _, k := range s.out {\n			upTo := k.put(", "		for _, k := range s.out[:0] {\n			upTo := k.put("}},
			[]string{"-run", "^TestLimitsKillHost$"}, nil, "passed at most"},
		{"what is not known counts as unused", "internal/quota/replicate.go", [][2]string{{
			"s.tables, s.lost, s.unwritten = nil, !by.known, by.moved",
			"s.tables, s.lost, s.unwritten = nil, false, by.moved"}},
			[]string{"-run", "^TestLimitsKillBoth$"}, nil, "passed at most"},
		{"a job noted before it is answered", "queue/dispatch.go", [][2]string{{
			"	o := set.Handler.Deliver(d.flight, &f.job)\n",
			"	d.say(d.noting, func() note {\n" +
				"		return note{kind: noteDone, ref: f.ref, done: []int{f.ref.index()}}\n	})\n" +
				"	o := set.Handler.Deliver(d.flight, &f.job)\n"}},
			[]string{"-run", "^TestQueuesSilentTarget$"}, nil, "answered and not delivered"},
		{"a job is told before it is written", "queue/put.go", [][2]string{{
			"		case <-ctx.Done():\n			return fmt.Errorf(\"%w: %w\", ErrWrite, context.Cause(ctx))\n		}\n" +
				"		for k, i",
			"		default:\n		}\n		for k, i"}},
			[]string{"-run", "^TestQueuesSilentTarget$"}, nil, "answered and not delivered"},
		{"no fence between hosts of a queue", "queue/host.go", [][2]string{{
			"h.q.notes.Append(try, b, h.last)", "h.q.notes.Append(try, b, store.AnySequence)"}},
			[]string{"-run", "^(TestQueuesFreeze|TestQueuesCut|TestQueuesKillHost)$"}, nil, ""},
		{"the record says that all were called", "internal/counter/corewrite.go", [][2]string{{
			"	c.pool.PutLine(part)\n", "	part.Frontier = part.Next\n	c.pool.PutLine(part)\n"}},
			[]string{"-run", "^TestKillHost$"}, nil, "tickets lost"},
		{"calls by chance", "internal/counter/core.go", [][2]string{{
			"	if c.cfg.RandomOrder {\n		return c.line.Draw(", "	if true {\n		return c.line.Draw("}},
			[]string{"-run", "^TestThree$"}, nil, "overtaken by more than"},
		{"a takeover forgets what was done", "queue/host.go", [][2]string{{
			"			old.note(&notes[i])\n", "			_ = notes[i]\n"}},
			[]string{"-run", "^TestQueuesRollingRestart$"}, nil, "delivered again"},
		{"a worker lends itself a slot", "internal/slot/share.go", [][2]string{{
			"return s.granted - s.returned - s.opened }", "return s.granted - s.returned - s.opened + 1 }"}},
			[]string{"-run", "^TestThree$"}, nil, ""},
		{"a key lends what it does not have", "limit/lend.go", [][2]string{{
			"	free := l.Remaining\n", "	free := l.Remaining + 5\n"}},
			[]string{"-run", "^TestLimitsQuiet$"}, nil, "passed at most"},
	}
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
	const least = 13
	all := mutants()
	if len(all) < least {
		t.Errorf("%d mutants, want %d", len(all), least)
	}
	for i := range all {
		all[i].mutate(t)
	}
}
