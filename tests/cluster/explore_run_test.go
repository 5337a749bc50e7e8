//go:build explore && !cluster

package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	seeds   = flag.String("seeds", "1-12", "which seeds TestExplore plays, such as 100-199")
	played  = flag.String("played", "", "file of what was played: it is not played again with the same code")
	forTime = flag.Duration("for", 0, "begin no other seed after so long; 0 is no bound")
)

// seedTakes bounds one seed in real time: what takes longer stands still. Chosen: ten times what
// a seed takes on two cores that others use too.
const seedTakes = 5 * time.Minute

// TestExplore plays seeds, each in a process of its own, until something breaks, and finds out
// without which of its events it breaks no more.
func TestExplore(t *testing.T) {
	first, last := seedRange(t, *seeds)
	end := time.Now().Add(*forTime)
	code := revision(t)
	done := playedBefore(t, code)
	n := 0
	for s := first; s <= last; s++ {
		if *forTime > 0 && time.Now().After(end) {
			t.Logf("time is over before seed %d", s)
			break
		}
		if done[s] {
			continue
		}
		out, ok := playSeed(t, s, nil)
		if n++; ok {
			note(t, code, s)
			continue
		}
		t.Errorf("seed %d breaks\n%s", s, out)
		without := shrink(t, s)
		t.Fatalf("play it again: scripts/seeded tests/cluster '%s'", strings.Join(seedFlags(s, without), "' '"))
	}
	t.Logf("%d seeds played, from %d to %d", n, first, last)
}

// TestHistoriesRepeat: a world of queues that is played again has the same history. Without the
// changed runtime of scripts/seeded it has not. Worlds of rooms and limits part now and then:
// docs/adr/0061-a-seed-is-a-history.md.
func TestHistoriesRepeat(t *testing.T) {
	had := ""
	for range 2 {
		out, ok := playSeed(t, 2, nil)
		i := strings.Index(out, "history ")
		if !ok || i < 0 {
			t.Fatalf("seed 2 breaks, or has no history:\n%s", out)
		}
		now, _, _ := strings.Cut(out[i:], "\n")
		if had != "" && now != had {
			t.Errorf("%s, then %s", had, now)
		}
		had = now
	}
}

// shrink leaves out what events it can, and returns their numbers.
func shrink(t *testing.T, s uint64) []string {
	t.Helper()
	var without []string
	for i := range history(s, storeNodes()) {
		try := append(slices.Clone(without), strconv.Itoa(i))
		if _, ok := playSeed(t, s, try); !ok {
			without = try
		}
	}
	return without
}

// seedFlags are the flags of a test binary that plays a seed. It is always run with as many: what it
// allocates before the bubble begins is part of the history.
func seedFlags(s uint64, without []string) []string {
	return []string{"-test.run=^TestSeed$", "-test.v", "-seed=" + strconv.FormatUint(s, 10),
		"-leave-out=" + strings.Join(without, ",")}
}

// playSeed plays one in a process of its own. It returns what it says, or what broke.
func playSeed(t *testing.T, s uint64, without []string) (out string, ok bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), seedTakes)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := exec.CommandContext(ctx, self, seedFlags(s, without)...).CombinedOutput()
	if err == nil {
		return string(b), true
	}
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.SplitSeq(string(b), "\n") {
		if strings.Contains(line, ".go:") && !strings.HasPrefix(line, "\t") ||
			strings.HasPrefix(line, "panic: ") {
			lines = append(lines, fmt.Sprintf("%.300s", line))
		}
	}
	return strings.Join(lines[:min(len(lines), 40)], "\n"), false
}

func seedRange(t *testing.T, text string) (first, last uint64) {
	t.Helper()
	from, to, both := strings.Cut(text, "-")
	first, err := strconv.ParseUint(from, 10, 64)
	if last = first; err == nil && both {
		last, err = strconv.ParseUint(to, 10, 64)
	}
	if err != nil || last < first {
		t.Fatalf("-seeds %s: write 1-50, or 7", text)
	}
	return first, last
}

// revision names the code that is played.
func revision(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// playedBefore are the seeds that the file has of this code.
func playedBefore(t *testing.T, code string) map[uint64]bool {
	t.Helper()
	done := map[uint64]bool{}
	b, err := os.ReadFile(*played)
	if *played == "" || errors.Is(err, os.ErrNotExist) {
		return done
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if of, s, ok := strings.Cut(strings.TrimSpace(line), " "); ok && of == code {
			if n, err := strconv.ParseUint(s, 10, 64); err == nil {
				done[n] = true
			}
		}
	}
	return done
}

func note(t *testing.T, code string, s uint64) {
	t.Helper()
	if *played == "" {
		return
	}
	if err := os.MkdirAll(filepath.Dir(*played), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(*played, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s %d\n", code, s)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
