package store

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/embedded"
)

// fileLimit makes every write beyond n bytes of any file of this process fail,
// as a full disk would, and returns the way back.
func fileLimit(t *testing.T, n uint64) (lift func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: n, Max: old.Max})
	return func() { set(old) }
}

// An engine whose disk refuses a write refuses for ever, also when there is room
// again: it is started anew until it takes writes, and nothing confirmed is lost.
func TestAnEngineThatCouldNotWriteIsHealed(t *testing.T) {
	const child = "HEADGATE_TEST_FILE_LIMIT" // the limit is the whole process's: take another one
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	ctx, stop := context.WithCancel(t.Context())
	d := &disk{t: t, dir: t.TempDir()}
	d.open()
	defer d.close()
	d.store.cfg.Heal = d.engine.Heal
	done := make(chan error, 1)
	go func() { done <- d.engine.Run(ctx) }()
	defer func() { stop(); <-done }()

	rev := d.put("k", "one", 0)
	rev = d.put("k", "two", rev)
	info, err := os.Stat(d.block())
	if err != nil {
		t.Fatal(err)
	}
	lift := fileLimit(t, uint64(info.Size()))
	failed := 0
	for range 5 {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		if _, err := d.store.CompareAndSwap(short, "k", rev, []byte("three")); err != nil {
			failed++
		}
		cancel()
	}
	lift()
	if failed != 5 {
		t.Fatalf("%d of 5 writes failed on a full disk", failed)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		short, cancel := context.WithTimeout(ctx, time.Second)
		_, err := d.store.CompareAndSwap(short, "k", rev, []byte("three"))
		cancel()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the engine is not healed: %v", err)
		}
		if got, now, err := d.store.Load(ctx, "k"); err == nil {
			rev = now
			if string(got) != "two" && string(got) != "three" {
				t.Fatalf("%q after two was confirmed", got)
			}
		}
	}
	d.want("k", "three")
}

// The engine does not take a folder that it cannot write for a damaged one.
func TestAFolderThatCannotBeWrittenStaysWhereItIs(t *testing.T) {
	dir := t.TempDir() + "/engine"
	if err := os.WriteFile(dir, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := embedded.Open(t.Context(), embedded.Config{Dir: dir}); err == nil {
		s.Close()
		t.Fatal("an engine in a file")
	}
	if b, err := os.ReadFile(dir); err != nil || string(b) != "a file" {
		t.Errorf("%q, %v", b, err)
	}
}

// An engine that is without its others for a moment answers, and is sound: to start it anew would
// only keep them apart for longer. One that answers that it cannot store is started anew.
func TestAnAnswerThatPassesIsNoReasonToStartAnew(t *testing.T) {
	for code, want := range map[jetstream.ErrorCode]int{
		codeNotNow: 0, codeNoLeader: 0, codeUnderWay: 0, codeStoreFailed: 1,
	} {
		healed := 0
		heal := func(error) { healed++ }
		err := &jetstream.APIError{ErrorCode: code, Description: "of a test"}
		l, n := &Log{cfg: LogConfig{Heal: heal}}, &NATS{cfg: NATSConfig{Heal: heal}}
		if got := l.writeError(t.Context(), err); !errors.Is(got, err) || healed != want {
			t.Errorf("log, code %d: %v, healed %d times of %d", code, got, healed, want)
		}
		healed = 0
		if got := n.writeError(t.Context(), err); !errors.Is(got, err) || healed != want {
			t.Errorf("records, code %d: %v, healed %d times of %d", code, got, healed, want)
		}
	}
}
