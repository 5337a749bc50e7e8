//go:build kills

package queues

import (
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mounting runs a test again in a mount namespace of its own and reports whether this is
// that run.
func mounting(t *testing.T) bool {
	t.Helper()
	const inside = "HEADGATE_TEST_NAMESPACE"
	if os.Getenv(inside) != "" {
		return true
	}
	how := []string{"-r", "-m"} // a user namespace, for everybody
	if os.Geteuid() == 0 {
		how = []string{"-m"}
	}
	cmd := exec.Command("unshare", append(how, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")...)
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("unshare: %v: this test mounts a file system and needs root, or user namespaces\n%s", err, out)
	}
	return false
}

// fill writes a file until there is no room at all.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for b := make([]byte, size); ; {
			if _, err := f.Write(b); errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAFullDiskRefusesAndLosesNothing(t *testing.T) {
	if !mounting(t) {
		return
	}
	g := &target{got: map[string]int{}}
	server := httptest.NewServer(g)
	defer server.Close()
	p := build(t, 2000, "    target: {url: "+server.URL+"}\n    rate: 500\n")
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs",
		p.path("data")).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	defer func() {
		p.kill()
		_ = exec.Command("umount", "-l", p.path("data")).Run()
	}()
	p.token = strings.TrimSpace(p.run(p.bin, "token", "create", "--scope", "write", "--data", p.path("data")))
	p.start()
	put := 0
	putSome := func() error {
		err := p.put(put, put+200)
		if err == nil {
			put += 200
		}
		return err
	}
	for put < 2000 {
		if err := putSome(); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, p.path("data/ballast"))
	refused := error(nil)
	for end := time.Now().Add(30 * time.Second); refused == nil; refused = putSome() {
		if time.Now().After(end) {
			t.Fatal("a full disk refuses nothing")
		}
	}
	t.Logf("after %d jobs: %v", put, refused)
	text := refused.Error()
	if !strings.Contains(text, "not_written") && !strings.Contains(text, "data_folder") &&
		!strings.Contains(text, "queue_full") {
		t.Errorf("refused by %v", refused)
	}
	p.kill() // while it is full
	if err := os.Remove(p.path("data/ballast")); err != nil {
		t.Fatal(err)
	}
	p.start()
	wait(t, "jobs can be put again", 30*time.Second, func() bool { return putSome() == nil })
	wait(t, "all delivered", time.Minute, func() bool { return g.count() >= put })
	for i := range put {
		if g.got[strconv.Itoa(i)] == 0 {
			t.Fatalf("job %d was answered, and is lost", i)
		}
	}
}
