//go:build crowd || soak

package crowd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/loopback"
)

// A rehearsal is one run of the real binary.
type rehearsal struct {
	limits  Limits
	session time.Duration
	crowd   crowd.Config // URL and LeavePath are filled in
}

// run builds headgate, starts it before a judging origin, sends the crowd and
// holds what was seen against the limits.
func (re *rehearsal) run(t *testing.T) {
	origin, err := StartOrigin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := origin.Close(); err != nil {
			t.Error(err)
		}
	}()
	public, admin := loopback.Free(t), loopback.Free(t)
	startHeadgate(t, build(t), re.arguments(origin.URL, public, admin)...)
	awaitReady(t, "http://"+admin)

	ctx, cancel := context.WithTimeout(t.Context(), re.crowd.Duration+time.Minute)
	defer cancel()
	run := Run{Limits: re.limits}
	watchCtx, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	var wg sync.WaitGroup
	wg.Go(func() { run.Room = WatchRoom(watchCtx, "http://"+admin) })

	re.crowd.URL, re.crowd.LeavePath = "http://"+public+"/", LeavePath
	run.Crowd, err = crowd.Run(ctx, re.crowd, nil)
	stopWatch()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if run.Metrics, err = get(ctx, "http://"+admin+"/metrics"); err != nil {
		t.Error(err)
	}
	if run.Analytics, err = keptOf(ctx, "http://"+admin); err != nil {
		t.Error(err)
	}
	run.Origin, run.Strangers = origin.Requests(), origin.Strangers()

	figures := run.Verdict()
	var summary strings.Builder
	s := run.Crowd.Summary()
	if err := s.Write(&summary); err != nil {
		t.Error(err)
	}
	t.Logf("seed %d\n%s\n%s", re.crowd.Seed, Table(figures), &summary)
	for _, f := range figures {
		if !f.OK() {
			t.Errorf("%s: %.4g, limit %.4g %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
}

func (re *rehearsal) arguments(origin, public, admin string) []string {
	return strings.Fields("run --origin " + origin +
		" --total-active-users " + strconv.Itoa(re.limits.Total) +
		" --new-users-per-minute " + strconv.Itoa(re.limits.New) +
		" --session-duration " + re.session.String() +
		" --listen " + public + " --admin-listen " + admin)
}

// build compiles the binary that is tested, as a user would.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "headgate")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin,
		"github.com/headgate/headgate/cmd/headgate")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build headgate: %v\n%s", err, out)
	}
	return bin
}

// startHeadgate starts the process in a directory of its own and stops it when
// the test ends. Its output is shown if the test has failed by then.
func startHeadgate(t *testing.T, bin string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if err := stop(cmd.Process, ended); err != nil {
			t.Errorf("headgate: %v", err)
		}
		output.Close()
		if text, err := os.ReadFile(output.Name()); t.Failed() && err == nil {
			t.Logf("headgate %s\n%s", strings.Join(args, " "), tail(text))
		}
	})
}

// stop asks the process to end, and ends it if it does not.
func stop(p *os.Process, ended <-chan error) error {
	select {
	case err := <-ended:
		return errors.Join(errors.New("ended by itself"), err)
	default:
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(30 * time.Second):
	}
	return errors.Join(errors.New("did not stop within 30 s of SIGTERM"), p.Kill(), <-ended)
}

func tail(text []byte) []byte {
	const most = 8 << 10
	if len(text) > most {
		return text[len(text)-most:]
	}
	return text
}

func awaitReady(t *testing.T, admin string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		_, err := get(t.Context(), admin+"/readyz")
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("headgate was not ready within 30 s: %v", err)
		}
	}
}
