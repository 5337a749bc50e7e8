package crowd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Test is the part of testing.T that the functions for processes need.
type Test interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(f func())
	Failed() bool
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// Build compiles the tested binary, as a user would.
func Build(t Test) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "headgate")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin,
		"github.com/headgate/headgate/cmd/headgate")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build headgate: %v\n%s", err, out)
	}
	return bin
}

// A Process is a headgate process started by a test.
type Process struct {
	PID  int
	Stop func() // stops it and waits
	Kill func() // kills it as kill -9 does, and waits; Stop does nothing then
}

// Start starts the process in its own directory and stops it when the test ends. If the test has
// failed, its output is shown.
func Start(t Test, bin string, args ...string) *Process {
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
	p := &Process{PID: cmd.Process.Pid}
	var end sync.Once
	p.Stop = func() {
		end.Do(func() {
			if err := stop(cmd.Process, ended); err != nil {
				t.Errorf("headgate: %v", err)
			}
		})
	}
	p.Kill = func() {
		end.Do(func() {
			if err := cmd.Process.Kill(); err != nil {
				t.Errorf("kill headgate: %v", err)
			}
			if err := <-ended; err == nil {
				t.Errorf("headgate ended before it was killed")
			}
		})
	}
	t.Cleanup(func() {
		p.Stop()
		output.Close()
		if text, err := os.ReadFile(output.Name()); t.Failed() && err == nil {
			t.Logf("headgate %s\n%s", strings.Join(args, " "), tail(text))
		}
	})
	return p
}

// stop requests the process to end, and kills it if it does not.
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

// AwaitReady waits until the process at an admin address is ready.
func AwaitReady(t Test, admin string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		_, err := Get(t.Context(), admin+"/readyz")
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
