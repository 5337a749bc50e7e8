//go:build cluster

package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var binary = flag.String("binary", "", "test this headgate instead of building one")

// TestMain builds headgate once, with the packages that the tests are built with.
func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "headgate-cluster-")
	if err == nil && *binary == "" {
		*binary = filepath.Join(dir, "headgate")
		build := exec.Command("go", "build", "-race=false", "-o", *binary,
			"github.com/headgate/headgate/cmd/headgate")
		if out, failed := build.CombinedOutput(); failed != nil {
			err = fmt.Errorf("build headgate: %w\n%s", failed, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// command runs headgate to its end and gives its standard output.
func command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), *binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("headgate %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return strings.TrimSpace(out.String())
}

// How long a process may take. Chosen: the first start of a cluster elects a
// leader, which takes seconds; a clean stop drains for at most 30 s
// (docs/service.md), which no visitor of these runs needs.
const (
	readyWithin = 30 * time.Second
	stopWithin  = 20 * time.Second
)

// A process is a headgate that can be killed, frozen and started again, always
// by the same command. Its methods are for the goroutine of the test, but pid.
type process struct {
	t      *testing.T
	name   string
	args   []string
	run    string             // the program, "" for headgate
	env    []string           // nil is that of the test
	probe  func(string) error // of admin: is it ready
	dir    string             // where it runs, with its output and its data
	admin  string
	output *os.File

	cmd    *exec.Cmd // nil: it does not run
	ended  chan error
	number atomic.Int64 // of the process, 0 if it does not run
}

// newProcess starts nothing.
func newProcess(t *testing.T, name, admin string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, dir: t.TempDir(), admin: admin, args: args, probe: new(outside).probe}
	var err error
	if p.output, err = os.Create(filepath.Join(p.dir, "output")); err != nil {
		t.Fatal(err)
	}
	return p
}

// start starts the process and does not wait for it.
func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(cmp.Or(p.run, *binary), p.args...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.dir, p.env, p.output, p.output
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	p.number.Store(int64(p.cmd.Process.Pid))
	ended := make(chan error, 1)
	p.ended = ended
	go func(cmd *exec.Cmd) { ended <- cmd.Wait() }(p.cmd)
}

// ready waits until the process says that it takes visitors.
func (p *process) ready() {
	p.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(readyWithin)
	for {
		err := p.probe(p.admin)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case why := <-p.ended:
			p.cmd = nil
			p.t.Fatalf("%s ended while it started: %v\n%s", p.name, why, p.tail())
		case <-deadline:
			p.t.Fatalf("%s was not ready within %v: %v\n%s", p.name, readyWithin, err, p.tail())
		}
	}
}

// tail is the end of what the process has said.
func (p *process) tail() string {
	text, err := os.ReadFile(p.output.Name())
	if err != nil {
		return err.Error()
	}
	const most = 4 << 10
	for _, last := range []string{"\npanic: ", "\nfatal error: "} { // what follows is all goroutines
		if i := bytes.Index(text, []byte(last)); i >= 0 {
			text = text[:min(len(text), i+most/2)]
		}
	}
	return fmt.Sprintf("--- %s, last lines\n%s", p.name, text[max(0, len(text)-most):])
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v to %s: %v", s, p.name, err)
	}
}

func (p *process) runs() bool { return p.cmd != nil }

func (p *process) freeze() { p.signal(syscall.SIGSTOP) }

func (p *process) wake() { p.signal(syscall.SIGCONT) }

// kill ends the process as a power cut does.
func (p *process) kill() {
	p.t.Helper()
	p.alive()
	p.signal(syscall.SIGKILL)
	<-p.ended
	p.gone()
}

// stop asks the process to end, and waits for it.
func (p *process) stop() {
	p.t.Helper()
	p.alive()
	p.signal(syscall.SIGTERM)
	p.over()
}

// over waits for the end that was asked for.
func (p *process) over() {
	p.t.Helper()
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Errorf("%s: %v\n%s", p.name, err, p.tail())
		}
	case <-time.After(stopWithin):
		p.t.Errorf("%s did not stop within %v of SIGTERM\n%s", p.name, stopWithin, p.tail())
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
	p.gone()
}

func (p *process) gone() {
	p.cmd = nil
	p.number.Store(0)
}

// alive fails the test if the process has ended by itself.
func (p *process) alive() {
	p.t.Helper()
	if p.cmd == nil {
		p.t.Fatalf("%s does not run", p.name)
	}
	select {
	case err := <-p.ended:
		p.gone()
		p.t.Fatalf("%s ended by itself: %v\n%s", p.name, err, p.tail())
	default:
	}
}
