//go:build real

package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"
)

// TestWorldDemo cuts a real data center off under a real crowd. The shop and the visitors
// judge. A short run sees that people come in everywhere, a longer one the cut.
func TestWorldDemo(t *testing.T) {
	t.Parallel()
	stick := yardstick.Start(t)
	var lines, text strings.Builder
	cfg := shortDemo(t, built, &lines)
	cfg.World, cfg.Kills, cfg.For, cfg.Limits.AtOnce, cfg.Limits.PerMinute = true, 0, 10*time.Second, 12, 900
	cfg.Visitors = 30
	if !testing.Short() {
		cfg.For = 17 * time.Second // the cut begins at cutAt of it, and takes cutLeast
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
	if s.report.Tight.n < 6 || s.report.Tight.n > 12 {
		t.Errorf("most inside %v, want at least half: else nothing was judged", s.report.Tight)
	}
	for _, p := range places() {
		if s.report.By[p.name] == 0 {
			t.Errorf("nobody came in through %s: %v", p.title, s.report.By)
		}
	}
	farthest := 2 * distances()[[2]string{"del", "sjc"}]
	var ms int64
	var took float64
	cuts := 0
	for _, l := range s.more {
		fmt.Sscanf(l[1], "certain to %d ms", &ms)
		if l[0] == "cut off" {
			cuts++
			fmt.Sscanf(l[1], "London for %f s", &took)
		}
	}
	doubt := time.Duration(ms) * time.Millisecond
	stick.Judge(t, "the doubt of the clocks", doubt, yardstick.Bound{Design: 5 * farthest, Delays: 20})
	if doubt < farthest {
		t.Errorf("a doubt of %v: want the wires to be as slow as they should", doubt)
	}
	want := []string{"wake up and find each other", "Delhi is up\n", "it is morning in Delhi",
		" held  ", "let in through  ", "first answer, median", "messages a second", "San Jose ", " to Delhi", "told to wait"}
	if !testing.Short() {
		want = append(want, "London is cut off, with ", ", cut off  ", "London is joined with the others again",
			"it held ")
		cut := time.Duration(took * float64(time.Second))
		if cuts != 1 || cut < cutLeast-100*time.Millisecond { // it is told in tenths
			t.Errorf("%d cuts, of %v; want one of %v", cuts, cut, cutLeast)
		} else { // it is mended at a look
			stick.Judge(t, "the cut", cut, yardstick.Bound{Design: cutLeast + 2*lookEvery, Delays: 20})
		}
	}
	for _, want := range want {
		if !strings.Contains(lines.String()+text.String(), want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if left := append(leftovers(t, cfg.Temp), livesIn(cfg.Temp)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestNothingIsLeftOfAWorld ends the demo before the data centers have met.
func TestNothingIsLeftOfAWorld(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			cmd, _ := startDemo(t, folder, "--datacenters")
			all := childrenOf(t, cmd.Process.Pid)
			if len(all) != len(places()) {
				t.Errorf("processes %v, want %d", all, len(places()))
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			for _, pid := range all {
				awaitGone(t, pid)
			}
			if left := leftovers(t, folder); sig != syscall.SIGKILL && len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestADatacenterThatDies: an end that the demo did not mean is an error that names it.
func TestADatacenterThatDies(t *testing.T) {
	cfg := shortDemo(t, "/bin/false", os.Stderr)
	cfg.World, cfg.Kills = true, 0
	_, err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), " ended by itself") {
		t.Fatalf("%v, want an error that names the data center", err)
	}
	if !slices.ContainsFunc(places(), func(p place) bool { return strings.HasPrefix(err.Error(), p.title) }) {
		t.Errorf("%v, want an error that names the data center", err)
	}
	if left := leftovers(t, cfg.Temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestWorldConfig: each data center is told of the others at the ends of wires.
func TestWorldConfig(t *testing.T) {
	d := stillDemo(t, 0)
	for _, c := range d.cities {
		text, err := os.ReadFile(c.config())
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range d.wires {
			if has := strings.Contains(string(text), w.ln.Addr().String()); has != w.joins(c.name) {
				t.Errorf("%s is told of the wire %v: %t", c.name, w.ends, has)
			}
		}
		cmd := exec.CommandContext(t.Context(), built, "check", "--config", c.config())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(c.folder), err, out)
		}
	}
}
