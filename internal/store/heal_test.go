//go:build unix

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

	"github.com/headgate/headgate/tests/yardstick"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/embedded"
)

// fileLimit makes every write beyond n bytes of any file of this process fail, like a full disk. It
// returns a function that removes the limit.
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

// After a rejected write, an engine rejects all writes, even when the disk has room again. It is
// restarted until it accepts writes, and no confirmed write is lost.
func TestAnEngineThatCouldNotWriteIsHealed(t *testing.T) {
	const child = "HEADGATE_TEST_FILE_LIMIT" // the limit is for a whole process, so use another one
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
	d.store.cfg.OnWriteFailure = d.engine.Heal
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
	yardstick.Await(t, "healed", func() bool {
		short, cancel := context.WithTimeout(ctx, time.Second)
		_, err := d.store.CompareAndSwap(short, "k", rev, []byte("three"))
		cancel()
		if err == nil {
			return true
		}
		if got, now, err := d.store.Load(ctx, "k"); err == nil {
			rev = now
			if string(got) != "two" && string(got) != "three" {
				t.Fatalf("%q after two was confirmed", got)
			}
		}
		return false
	})
	d.want("k", "three")
}

// The engine does not treat a folder without write permission as damaged.
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

// An engine that temporarily lacks other servers answers and is sound, and a restart would only
// prolong that. An engine that answers that it cannot store is restarted. An engine that answers
// that the request is wrong would say so after a restart too.
func TestAnEngineIsStartedAnewForWhatAStartMends(t *testing.T) {
	deadline, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	for _, c := range []struct {
		err         error
		alone, many int // restarts of a single engine, and of one of several
	}{
		{&jetstream.APIError{ErrorCode: codeNotNow, Code: 503}, 0, 0},
		{&jetstream.APIError{ErrorCode: codeNoLeader, Code: 500}, 0, 0},
		{&jetstream.APIError{ErrorCode: codeIncomplete, Code: 503}, 0, 0},
		{&jetstream.APIError{ErrorCode: codeNotAssigned, Code: 500}, 0, 0},
		{&jetstream.APIError{ErrorCode: codeUnderWay, Code: 409}, 0, 0},
		{&jetstream.APIError{ErrorCode: codeNotReady, Code: 503}, 0, 0},
		{&jetstream.APIError{ErrorCode: codeTooMany, Code: 429}, 0, 0},
		{&jetstream.APIError{ErrorCode: codeOffline, Code: 500}, 0, 0},
		{&jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamMessageExceedsMaximum, Code: 400}, 0, 0},
		{&jetstream.APIError{ErrorCode: 10109, Code: 400}, 0, 0}, // the stream is sealed
		{&jetstream.APIError{ErrorCode: codeStoreFailed, Code: 503, Description: "no space"}, 1, 0},
		{&jetstream.APIError{ErrorCode: codeResources, Code: 503}, 1, 0},
		{&jetstream.APIError{ErrorCode: codeStorage, Code: 500}, 1, 0},
		{jetstream.ErrJetStreamNotEnabled, 1, 0},
		{&jetstream.APIError{ErrorCode: 10999, Code: 500}, 1, 0}, // an unknown code of a later version
		{&jetstream.APIError{ErrorCode: 10998, Code: 400}, 0, 0},
		{context.DeadlineExceeded, 1, 0},
		{errors.New("of something else"), 0, 0},
	} {
		for replicated, want := range map[bool]int{false: c.alone, true: c.many} {
			healed := 0
			heal := func(error) { healed++ }
			l := &Log{cfg: LogConfig{OnWriteFailure: heal}, replicated: replicated}
			n := &NATS{cfg: NATSConfig{OnWriteFailure: heal}, replicated: replicated}
			if got := l.writeError(deadline, c.err); !errors.Is(got, c.err) || healed != want {
				t.Errorf("log, replicated %v, %v: %v, started anew %d times of %d", replicated, c.err, got, healed, want)
			}
			healed = 0
			if got := n.writeError(deadline, c.err); !errors.Is(got, c.err) || healed != want {
				t.Errorf("records, replicated %v, %v: %v, started anew %d times of %d", replicated, c.err, got,
					healed, want)
			}
		}
	}
}

// A temporary error leads to a retry.
func TestWhatPassesIsAskedAgain(t *testing.T) {
	for code, want := range map[jetstream.ErrorCode]bool{
		codeNotNow: true, codeNoLeader: true, codeUnderWay: true, codeTooMany: true,
		codeStoreFailed: false, codeOffline: false,
	} {
		if got := unanswered(&jetstream.APIError{ErrorCode: code, Code: 503}); got != want {
			t.Errorf("code %d: asked again %v, want %v", code, got, want)
		}
	}
}
