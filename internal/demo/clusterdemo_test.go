package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestClusterDemo kills the host of a real cluster under a real crowd. The shop and the
// visitors judge. A short run sees the kill, a longer one that the room goes on.
func TestClusterDemo(t *testing.T) {
	t.Parallel()
	var lines, text strings.Builder
	cfg := shortDemo(t, built, &lines)
	cfg.Cluster, cfg.For = true, 6*time.Second
	if !testing.Short() {
		cfg.For = 24 * time.Second
	}
	s, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(&text); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s%s", &lines, &text)
	if f := s.Faults(); f != nil {
		t.Errorf("faults: %v", f)
	}
	k := s.seen.Kills
	if len(k) != 1 || !strings.HasSuffix(k[0].who, ", the host") || k[0].waiting < 10 || k[0].lost > 0 {
		t.Fatalf("kills %+v, want one of the host while some ten wait", k)
	}
	if !testing.Short() && (k[0].again < 10 || s.report.Count < 10) {
		t.Errorf("%d let in, %d of %d have been told since that they have their place", s.report.Count,
			k[0].again, k[0].waiting)
	}
	if s.report.Tight != (reach{5, 5}) {
		t.Errorf("most inside %v: the room was never full, so nothing was judged", s.report.Tight)
	}
	through := 0
	for _, name := range []string{"n1", "n2", "n3"} {
		if s.report.By[name] > 0 {
			through++
		}
	}
	if through < 2 || s.report.By[""] > 0 {
		t.Errorf("let in by %v: want several nodes, and nobody past them", s.report.By)
	}
	for _, want := range []string{"elect a leader", " hosts the room\n", "is killed, the host of the room\n",
		"hosts, n", "nobody new, at most", ", the host: nobody new for "} {
		if !strings.Contains(lines.String()+text.String(), want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if left := append(leftovers(t, cfg.Temp), livesIn(cfg.Temp)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// livesIn are the processes whose commands name a folder.
func livesIn(folder string) (lives []string) {
	files, _ := filepath.Glob("/proc/*/cmdline")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), folder) {
			lives = append(lives, fmt.Sprintf("%s %q", file, text))
		}
	}
	return lives
}

// TestNothingIsLeftOfACluster ends the demo before the room is open.
func TestNothingIsLeftOfACluster(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			cmd, _ := startDemo(t, folder, "--cluster")
			nodes := childrenOf(t, cmd.Process.Pid)
			if len(nodes) != storeNodes {
				t.Errorf("processes %v, want %d", nodes, storeNodes)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			for _, pid := range nodes {
				awaitGone(t, pid)
			}
			if left := leftovers(t, folder); sig != syscall.SIGKILL && len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// childrenOf are the processes that another has started.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
	}
	slices.Sort(children)
	return children
}

// TestANodeThatDies: an end that the demo did not mean is an error that names the node.
func TestANodeThatDies(t *testing.T) {
	cfg := shortDemo(t, "/bin/false", os.Stderr)
	cfg.Cluster, cfg.Kills = true, 0
	_, err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), " ended by itself") || err.Error()[0] != 'n' {
		t.Errorf("%v, want an error that names the node", err)
	}
	if left := leftovers(t, cfg.Temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestJudgeOfAnotherHost: an overtaking is none if the room had another host in
// between, of which the judge hears a little later.
func TestJudgeOfAnotherHost(t *testing.T) {
	for _, tt := range []struct {
		name      string
		overtaken int
		after     time.Duration // it is heard of; 0: there is none
		anew      func(s *stage)
	}{
		{"no other host", 1, 0, nil},
		{"another host", 0, 2 * time.Second, func(s *stage) { s.hostMoved() }},
		{"another host, long after", 1, 2 * doubtFor, func(s *stage) { s.hostMoved() }},
		{"a kill", 0, time.Second, func(s *stage) { s.killed("n1") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.patience, s.slack = doubtFor, clusterSlack
			s.come(1, 2)
			s.pass(5*time.Second, func() { s.waits(1, 11, 1); s.waits(2, 12, 2) })
			s.enters(2)
			s.pass(clusterSlack, func() { s.waits(1, 11, 1) })
			if len(s.doubts) > 0 {
				t.Errorf("%s: held against the room within %v", tt.name, clusterSlack)
			}
			s.pass(time.Second, func() { s.waits(1, 11, 1) })
			if f := s.finding(); f.Overtaken != 0 {
				t.Errorf("%s: %d overtaken at once, though it is in doubt", tt.name, f.Overtaken)
			}
			if tt.anew != nil {
				time.Sleep(tt.after)
				tt.anew(s)
			}
			time.Sleep(2 * doubtFor)
			if f := s.finding(); f.Overtaken != tt.overtaken {
				t.Errorf("%s: %d overtaken, want %d", tt.name, f.Overtaken, tt.overtaken)
			}
		})
	}
}

// TestAnAnswerThatKnowsNothing: a node that reaches no host keeps the visitor waiting
// and says no number. That is no place kept, and no place lost.
func TestAnAnswerThatKnowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.come(1, 2)
		ask := func() { s.waits(1, 11, 1); s.waits(2, 12, 2) }
		s.pass(5*time.Second, ask)
		s.killed("n1, the host")
		s.waits(1, 0, 0)
		if k := s.finding().Kills[0]; k.waiting != 2 || k.again != 0 || k.lost != 0 {
			t.Errorf("%+v, want two who were told nothing yet", k)
		}
		s.pass(3*time.Second, func() { s.waits(1, 0, 0); s.waits(2, 12, 2) })
		s.enters(2) // the host has not heard of 1 for long
		time.Sleep(500 * time.Millisecond)
		s.waits(1, 11, 1)
		f := s.finding()
		if k := f.Kills[0]; k.again != 2 || f.Overtaken != 0 || f.Lost != 0 {
			t.Errorf("%+v, want both to have their place", f)
		}
	})
}

// TestFaultsOfACluster: it is held to what it promises while enough nodes are up.
func TestFaultsOfACluster(t *testing.T) {
	good := func() *Summary {
		return &Summary{cluster: true, report: report{Count: 50}, seen: finding{Tickets: 30,
			Idle: idle{Longest: time.Hour, Served: 12 * time.Second, Calm: time.Minute},
			Kills: []kill{{who: "n1", waiting: 20, again: 20, age: time.Hour},
				{who: "n2, the host", waiting: 20, again: 3, idle: 6100 * time.Millisecond}}}}
	}
	var text strings.Builder
	if err := good().Write(&text); err != nil || good().Faults() != nil {
		t.Errorf("%v, a good run has faults: %v", err, good().Faults())
	}
	const want = "n2, the host: nobody new for 6.1 s; 20 were waiting then: 3 have their place, " +
		"17 have not asked since"
	if !strings.Contains(text.String(), want) || !strings.Contains(text.String(), "3600.0 s, though") {
		t.Errorf("want %q in\n%s", want, &text)
	}
	for name, breaks := range map[string]func(*Summary){
		"nobody is let in": func(s *Summary) { s.seen.Idle.Served = 2 * servedWithin },
		"silent":           func(s *Summary) { s.seen.Idle.Calm = 2 * calmWithin },
		"lost":             func(s *Summary) { s.seen.Lost = 1 },
	} {
		s := good()
		if breaks(s); len(s.Faults()) != 1 {
			t.Errorf("%s: faults %v", name, s.Faults())
		}
	}
}
