//go:build kills || soak

package baddays

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mounting runs a test again in a mount namespace of its own and reports whether
// this is that run.
func mounting(t *testing.T) bool {
	t.Helper()
	const inside = "HEADGATE_TEST_NAMESPACE"
	if os.Getenv(inside) != "" {
		return true
	}
	t.Parallel()
	how := []string{"-r", "-m"} // a user namespace, for everybody
	if os.Geteuid() == 0 {
		how = []string{"-m"}
	}
	if err := exec.Command("unshare", append(how, "true")...).Run(); err != nil {
		t.Fatalf("unshare %s: %v: this test mounts file systems and needs root, or user namespaces",
			strings.Join(how, " "), err)
	}
	cmd := exec.Command("unshare", append(how, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")...)
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) && err == nil {
		t.Errorf("nothing was tested:\n%s", out)
	}
	return false
}

// mount runs mount(8).
func (s *site) mount(args ...string) {
	s.t.Helper()
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("mount %s: %v: %s", strings.Join(args, " "), err, out)
	}
	// Headgate is ended after this: the folder must be free to be removed.
	s.t.Cleanup(func() { _ = exec.Command("umount", "-l", args[len(args)-1]).Run() })
}

func (s *site) unmount(dir string) {
	s.t.Helper()
	if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
		s.t.Fatalf("umount %s: %v: %s", dir, err, out)
	}
}

// fill writes a file until there is no room at all.
func (s *site) fill(file string) {
	s.t.Helper()
	f, err := os.Create(file)
	s.must(err)
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for b := make([]byte, size); ; {
			if _, err := f.Write(b); errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func TestFullDisk(t *testing.T) {
	if !mounting(t) {
		return
	}
	s := newSite(t)
	disk := filepath.Join(s.dir, "disk")
	ballast := filepath.Join(disk, "ballast")
	s.mount("-t", "tmpfs", "-o", "size=32m", "tmpfs", disk)
	s.start()
	c := s.crowd("/")
	s.doctor(0, "warning  free space")

	s.fill(ballast)
	// What was reserved on the disk before is used up first.
	s.until(60*time.Second, "the record is refused", func() bool {
		c.kept()
		s.held("/")
		return s.record("shop").Refused > 1
	})
	s.rest(10*time.Second, func() { c.kept(); s.held("/") })
	// The engine's and each room's, and what the engine says. What the engine cleared when it
	// started anew may have made way for one more record: then that room's is told again.
	n, again := len(s.errors()), strings.Count(s.said(), `msg="record is written again"`)
	if n == 0 || again > 2 || n > 6+again {
		t.Errorf("%d errors in the log within ten seconds, %d times written again, want one of each kind:\n%s",
			n, again, strings.Join(s.errors(), ""))
	}
	s.doctor(1, "the disk is full", "room shop: its record has not been written")

	s.must(os.Remove(ballast))
	s.until(10*time.Second, "all goes on", func() bool {
		c.kept()
		return s.record("shop").Refused+s.record("tea").Refused == 0
	})
	s.doctor(0)
	s.rest(3*time.Second, c.check)
	s.kill()
	s.start()
	s.rest(5*time.Second, c.check)
	s.stop()

	// Full at the start: nothing is lost, and it says why.
	s.fill(ballast)
	began := time.Now()
	s.wants(1, []string{"headgate: data folder", "hint: the disk is full"}, "run", "--config", s.config)
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v to say so", d)
	}
	s.must(os.Remove(ballast))
	s.start()
	c.check()
}

func TestReadOnly(t *testing.T) {
	if !mounting(t) {
		return
	}
	s := newSite(t)
	disk := filepath.Join(s.dir, "disk")
	s.start()
	c := s.crowd("/")

	// What is open stays writable, as the kernel refuses to change that; nothing
	// new can be made.
	s.mount("--bind", disk, disk)
	s.mount("-o", "remount,bind,ro", disk)
	s.rest(6*time.Second, c.check)
	s.doctor(1, "read-only")
	s.kill()
	s.wants(1, []string{"headgate: data folder", "read-only file system",
		"hint: the file system is read-only"}, "run", "--config", s.config)
	s.doctor(1, "read-only")
	s.unmount(disk)
	s.start()
	s.rest(3*time.Second, c.check)
}
