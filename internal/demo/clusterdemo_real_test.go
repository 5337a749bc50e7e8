//go:build real

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
