//go:build kills || soak

package kills

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

// A process is the headgate that is killed and started again, always with the
// same arguments, in the same folder.
type process struct {
	t      *testing.T
	bin    string
	args   []string
	dir    string // where it runs; its data folder is dir/data
	public string
	admin  string
	output *os.File

	cmd   *exec.Cmd
	ended chan error
}

// newProcess builds headgate, as a user would, and starts nothing. The
// addresses and the data folder are given.
func newProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, bin: *binary, dir: t.TempDir(), public: loopback.Free(t), admin: loopback.Free(t)}
	if p.bin == "" {
		p.bin = filepath.Join(p.dir, "headgate")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", p.bin,
			"github.com/headgate/headgate/cmd/headgate")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build headgate: %v\n%s", err, out)
		}
	}
	p.args = append([]string{"run", "--listen", p.public, "--admin-listen", p.admin,
		"--data", p.data()}, args...)
	var err error
	if p.output, err = os.Create(filepath.Join(p.dir, "output")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

func (p *process) data() string { return filepath.Join(p.dir, "data") }

// close ends the process in order, and shows its output if the test failed.
func (p *process) close() {
	if p.cmd != nil {
		p.signal(syscall.SIGTERM)
		select {
		case err := <-p.ended:
			if err != nil {
				p.t.Errorf("headgate: %v", err)
			}
		case <-time.After(40 * time.Second):
			p.t.Error("headgate did not stop within 40 s of SIGTERM")
			p.signal(syscall.SIGKILL)
			<-p.ended
		}
	}
	p.output.Close()
	if text, err := os.ReadFile(p.output.Name()); p.t.Failed() && err == nil {
		p.t.Logf("headgate %s\n%s", strings.Join(p.args, " "), text[max(0, len(text)-8<<10):])
	}
}

// start starts it, by another command if one is given, and returns when it says
// that it is ready.
func (p *process) start(by ...string) {
	p.t.Helper()
	if by == nil {
		by = append([]string{p.bin}, p.args...)
	}
	p.command(by[0], by[1:]...)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for {
		resp, err := http.Get("http://" + p.admin + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case err := <-p.ended:
			p.cmd = nil
			p.t.Fatalf("headgate ended while it started: %v", err)
		case <-deadline:
			p.t.Fatalf("headgate was not ready within 60 s: %v", err)
		}
	}
}

func (p *process) command(name string, args ...string) {
	p.t.Helper()
	p.cmd = exec.Command(name, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, p.output, p.output
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	p.ended = ended
	go func(cmd *exec.Cmd) { ended <- cmd.Wait() }(p.cmd)
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v: %v", s, err)
	}
}

// kill ends a frozen or running process and waits for its end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
	p.cmd = nil
}

// alive reports whether the process has not ended by itself.
func (p *process) alive() bool {
	select {
	case err := <-p.ended:
		p.ended <- err
		return false
	default:
		return true
	}
}

// freeze stops the process and returns when none of its threads runs any more.
// A thread inside a system call has finished it by then, but has not returned:
// no line of headgate runs between the signal and the kill.
func (p *process) freeze() {
	p.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		if stopped := true; p.threads(func(dir string) bool {
			stat, err := os.ReadFile(dir + "/stat")
			_, rest, _ := strings.Cut(string(stat), ") ")
			stopped = stopped && (err != nil || strings.HasPrefix(rest, "T"))
			return stopped
		}) && stopped {
			return
		}
	}
	p.t.Error("headgate was not frozen within 5 s of SIGSTOP")
}

// thaw wakes a frozen process.
func (p *process) thaw() { p.signal(syscall.SIGCONT) }

// threads calls see with the /proc folder of each thread until it returns
// false, and reports whether there was any.
func (p *process) threads(see func(dir string) bool) bool {
	tasks := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	dir, err := os.Open(tasks)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, name := range names {
		if !see(tasks + "/" + name) {
			break
		}
	}
	return len(names) > 0
}

// writeInFlight names the system call and the file of a thread that is writing
// below the data folder, "" if none is. Of a running process it may miss one: a
// thread shows its call only while it waits in it.
func (p *process) writeInFlight() (found string) {
	p.threads(func(dir string) bool {
		line, err := os.ReadFile(dir + "/syscall")
		fields := strings.Fields(string(line))
		if err != nil || len(fields) < 2 {
			return true
		}
		name := ""
		switch fields[0] {
		case strconv.Itoa(syscall.SYS_FSYNC):
			name = "fsync"
		case strconv.Itoa(syscall.SYS_FDATASYNC):
			name = "fdatasync"
		case strconv.Itoa(syscall.SYS_WRITE), strconv.Itoa(syscall.SYS_PWRITE64):
			name = "write"
		default:
			return true
		}
		fd, err := strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 31)
		if err != nil {
			return true
		}
		file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.cmd.Process.Pid, fd))
		below, ok := strings.CutPrefix(file, p.data()+"/")
		if err == nil && ok {
			found = name + " " + topFolder(below)
		}
		return found == ""
	})
	return found
}

func topFolder(path string) string {
	top, _, _ := strings.Cut(path, "/")
	return top
}

// aim returns with the process frozen while it writes, if it is seen to write
// within the time given, else frozen at that moment. A thread is looked for from
// outside, then the process is frozen; if the write was over by then, it goes on
// and is looked at again.
func (p *process) aim(within time.Duration) (inFlight string) {
	for deadline := time.Now().Add(within); time.Now().Before(deadline) && p.alive(); {
		if p.writeInFlight() == "" {
			continue
		}
		p.freeze()
		if inFlight = p.writeInFlight(); inFlight != "" {
			return inFlight
		}
		p.thaw()
	}
	p.freeze()
	return p.writeInFlight()
}
