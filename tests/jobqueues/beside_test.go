package jobqueues

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	jobs   = flag.Int("jobs", 20_000, "jobs of each round")
	rounds = flag.Int("rounds", 3, "rounds of each system; they take turns")
)

// Clients of each system. Chosen: enough to keep two cores busy.
const (
	producers = 8
	workers   = 8
	batch     = 100 // jobs of one request, where a system takes several
)

// A system is a queue under measurement. The handler of a job does nothing.
type system interface {
	// put puts n jobs in batches and returns when all are confirmed.
	put(ctx context.Context, n int) error
	// work claims and acknowledges n jobs, and returns when none is left.
	work(ctx context.Context, n int) error
	// pid is the process of the server.
	pid() int
}

// A figure is what was measured of one system.
type figure struct {
	name, durable string
	system
	put, work, cpu []float64 // jobs a second, and µs of the server's processor time for a job
}

// TestBesideOthers measures each system in turn, several times.
func TestBesideOthers(t *testing.T) {
	all := []*figure{
		{name: "headgate", durable: "fsync before each answer: put, claim and ack", system: startHeadgate(t)},
		{name: "NATS JetStream, sync_interval always", durable: "fsync before a put is confirmed; acks are not confirmed",
			system: startNATS(t, "always")},
		{name: "NATS JetStream, as installed", durable: "fsync every two minutes; acks are not confirmed",
			system: startNATS(t, "2m")},
		{name: "PostgreSQL, River", durable: "fsync at each commit", system: startRiver(t)},
		{name: "Redis, asynq, appendfsync always", durable: "fsync after each command", system: startAsynq(t, "always")},
		{name: "Redis, asynq, appendfsync everysec", durable: "fsync every second", system: startAsynq(t, "everysec")},
	}
	for range *rounds {
		for _, f := range all {
			f.round(t)
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| system | durable | put a second | claimed and acknowledged a second | CPU of the server for a job |\n")
	fmt.Fprintf(&table, "|---|---|---:|---:|---:|\n")
	for _, f := range all {
		fmt.Fprintf(&table, "| %s | %s | %.0f | %.0f | %.0f µs |\n", f.name, f.durable, median(f.put), median(f.work),
			median(f.cpu))
	}
	t.Logf("medians of %d rounds of %d jobs, each system in turn:\n%s", *rounds, *jobs, table.String())
}

// round puts jobs and works on them.
func (f *figure) round(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	before, began := cpu(t, f.pid()), time.Now()
	if err := f.system.put(ctx, *jobs); err != nil {
		t.Fatalf("%s: put: %v", f.name, err)
	}
	put := time.Since(began)
	began = time.Now()
	if err := f.system.work(ctx, *jobs); err != nil {
		t.Fatalf("%s: work: %v", f.name, err)
	}
	worked, n := time.Since(began), float64(*jobs)
	f.put, f.work = append(f.put, n/put.Seconds()), append(f.work, n/worked.Seconds())
	f.cpu = append(f.cpu, float64((cpu(t, f.pid())-before).Microseconds())/n)
	t.Logf("%s: %.0f put, %.0f worked a second", f.name, n/put.Seconds(), n/worked.Seconds())
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// share runs f for numbers from 0 to n, in steps of each, on several goroutines.
func share(n, many, each int, f func(from, to int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, many)
	for range many {
		wg.Go(func() {
			for {
				from := int(next.Add(int64(each))) - each
				if from >= n {
					return
				}
				if err := f(from, min(n, from+each)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// A server is a process that ends with the test.
type server struct{ cmd *exec.Cmd }

func (s server) pid() int { return s.cmd.Process.Pid }

func start(t *testing.T, cmd *exec.Cmd) server {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s: %s", cmd.Path, text[max(0, len(text)-2000):])
		}
	})
	return server{cmd}
}

// output runs a command.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		said := ""
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			said = string(failed.Stderr)
		}
		t.Fatalf("%v: %v\n%s", cmd.Args, err, said)
	}
	return strings.TrimSpace(string(out))
}

// await waits until something is so.
func await(ctx context.Context, so func() bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// cpu returns the processor time of a process and of its children, also of those that have ended.
func cpu(t *testing.T, pid int) (all time.Duration) {
	t.Helper()
	of, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range of {
		b, err := os.ReadFile(file)
		if err != nil { // it has ended
			continue
		}
		head, rest, _ := strings.Cut(string(b), " (")
		_, rest, _ = strings.Cut(rest, ") ")
		f := strings.Fields(rest)
		if head != fmt.Sprint(pid) && f[1] != fmt.Sprint(pid) {
			continue
		}
		ticks := f[11:13]
		if head == fmt.Sprint(pid) {
			ticks = f[11:15]
		}
		for _, x := range ticks {
			var n time.Duration
			fmt.Sscan(x, &n)
			all += n * 10 * time.Millisecond // of 100 ticks a second
		}
	}
	return all
}
