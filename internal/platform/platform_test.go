package platform

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A lock is of a descriptor: a second one of the same process finds the file locked.
func TestALockKeepsOthersOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	one, other := open(), open()
	if IsLocked(other) {
		t.Error("locked before anybody locks it")
	}
	other.Close() // the look may have left a shared lock
	other = open()
	if err := TryLock(one); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(other); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: %v, want ErrLocked", err)
	}
	if !IsLocked(other) {
		t.Error("not seen to be locked")
	}
	if pid := LockHolder(other); pid != 0 && pid != os.Getpid() {
		t.Errorf("locked by %d, and this is %d", pid, os.Getpid())
	}
	one.Close()
	if err := TryLock(other); err != nil {
		t.Errorf("after the first is closed: %v", err)
	}
}

func TestADiskHasASizeAndFilesALimit(t *testing.T) {
	free, size, err := Space(t.TempDir())
	if err != nil || size == 0 || free > size {
		t.Errorf("%d bytes free of %d: %v", free, size, err)
	}
	limit, most, err := OpenFiles()
	if err != nil || limit == 0 || limit > most {
		t.Errorf("%d files of at most %d: %v", limit, most, err)
	}
	if err := SyncDir(t.TempDir()); err != nil {
		t.Error(err)
	}
}
