//go:build edges

package edges

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Times within which 99 % of the decisions for visitors inside are made on a machine at half load: the
// aim, and how many times that of the smallest handler in the same run is no fault on a busy machine.
const (
	soon     = time.Millisecond
	mostLate = 3
)

// TestHalfLoad: h2load asks about requests of a visitor inside, at a rate at which it and headgate use
// half of the CPU. It prints how long 99 % of the answers take at most, and the same of the smallest
// handlers at the same rate, in turns.
func TestHalfLoad(t *testing.T) {
	for _, x := range questions(t) {
		asked, each := 20000, 0.0
		for range 2 { // the first warms up
			before := ticks(t, []int{x.headgate})
			own := h2load(t, &x, x.at, fmt.Sprint("--requests=", asked))
			taken := float64(ticks(t, []int{x.headgate})-before)/100 + own.Seconds() // a tick is 10 ms
			each = taken / float64(asked)
		}
		rate := float64(runtime.NumCPU()) / 2 / each
		with, without := least(func() float64 { return late(t, &x, x.at, rate) },
			func() float64 { return late(t, &x, x.other, rate) })
		if err := x.with(); err != nil {
			t.Errorf("%s: a visitor inside is not let in: %v", x.name, err)
		}
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("99 %% of the questions by %s at half load, %.0f a second, are answered within %.3f ms by "+
			"headgate, %.3f ms by the smallest handler; load %s", x.name, rate, with, without, load)
		if most := max(soon.Seconds()*1e3, mostLate*without); with > most {
			t.Errorf("%s: %.3f ms, at most %.3f ms", x.name, with, most)
		}
	}
}

// clients is how many connections h2load asks over: on HTTP/1.1 each has one question at a time. It
// asks over all of them at the same instant, and the last of a burst waits for all others: with 64, 99 %
// of the answers of either server took 3 to 6 ms, at the same rate.
const clients = 8

// late asks at a rate, for two seconds, and returns the time within which 99 % are answered, in milliseconds.
func late(t *testing.T, x *comparison, at string, rate float64) float64 {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log")
	h2load(t, x, at, fmt.Sprintf("--rps=%.0f", rate/clients), "--duration=2", "--log-file="+file)
	lines, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	var took []float64
	for {
		var begin int64
		var status, micros int
		if n, _ := fmt.Fscan(lines, &begin, &status, &micros); n < 3 {
			break
		}
		if status/100 != 2 {
			t.Fatalf("%s answered %d", at, status)
		}
		took = append(took, float64(micros)/1e3)
	}
	if len(took) == 0 {
		t.Fatal("h2load has written no answer")
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// h2load asks at an address over a few connections, and returns the CPU time that it takes.
func h2load(t *testing.T, x *comparison, at string, more ...string) time.Duration {
	t.Helper()
	args := slices.Concat([]string{fmt.Sprint("--clients=", clients), "--connect-to=" + at}, x.load, more)
	ask := exec.CommandContext(t.Context(), "h2load", append(args, "http://shop.example"+x.path)...)
	if out, err := ask.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return ask.ProcessState.UserTime() + ask.ProcessState.SystemTime()
}
