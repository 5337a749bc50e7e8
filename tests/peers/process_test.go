//go:build bench

package peers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

// TestProcess measures the binary as an operator meets it: a fresh folder, the
// time until it is ready, its size and its memory when idle.
func TestProcess(t *testing.T) {
	bin := buildBinary(t)
	st, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	budget(t, "binary, MB", float64(st.Size())/1e6, 36) // two thirds are Go itself and other modules
	best := time.Hour
	var rss float64
	for range 5 {
		took, mb := startOnce(t, bin)
		best, rss = min(best, took), max(rss, mb)
	}
	budget(t, "start to ready, ms", float64(best.Milliseconds()), 200**slack)
	budget(t, "idle memory, MB", rss, 60)
}

func budget(t *testing.T, what string, got, most float64) {
	t.Helper()
	t.Logf("%-24s %8.1f (budget %.0f)", what, got, most)
	if got >= most {
		t.Errorf("%s: %.1f, budget %.0f", what, got, most)
	}
}

// startOnce starts the binary in a fresh folder and returns how long it took to
// be ready and its resident memory in MB three seconds later.
func startOnce(t *testing.T, bin string) (took time.Duration, mb float64) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	admin := loopback.Free(t)
	cmd := exec.CommandContext(ctx, bin, "run", "--origin", "http://127.0.0.1:1",
		"--total-active-users", "200", "--new-users-per-minute", "200",
		"--listen", loopback.Free(t), "--admin-listen", admin)
	cmd.Dir = t.TempDir()
	from := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(syscall.SIGTERM)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ready := false; !ready; <-tick.C {
		res, err := http.Get("http://" + admin + "/readyz")
		if err == nil {
			ready = res.StatusCode == http.StatusOK
			res.Body.Close()
		}
		if ctx.Err() != nil {
			t.Fatal("not ready within 30 s")
		}
	}
	took = time.Since(from)
	<-time.After(3 * time.Second)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb float64
			fmt.Sscan(rest, &kb)
			mb = kb / 1e3
		}
	}
	return took, mb
}
