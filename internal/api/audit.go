package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/ratelimit"
)

const (
	auditFile = "audit.log"
	auditMax  = 10 << 20 // size at which the file is rotated
	auditKept = 5        // rotated files that are kept
)

// An AuditEntry is one line of the audit log: who did, or tried to do, what.
type AuditEntry struct {
	At        time.Time         `json:"at"`
	Who       string            `json:"who"`  // id of the token, "" without a valid one
	Name      string            `json:"name"` // its name
	Remote    string            `json:"remote"`
	What      string            `json:"what"` // method and path, or the command
	Room      string            `json:"room"`
	Before    map[string]string `json:"before,omitempty"`
	After     map[string]string `json:"after,omitempty"`
	Asked     map[string]string `json:"asked,omitempty"` // of a rejected change
	Result    string            `json:"result"`          // ok, or the problem's code
	RequestID string            `json:"request_id"`
}

// An Audit is the audit log in a data folder. Lines are only added, and each is on the disk before
// Append returns. It may be used by many goroutines at once; a command may add lines at the same
// time as the process.
type Audit struct {
	dir string
	max int64

	mu sync.Mutex
	f  *os.File
}

// NewAudit returns the log of a data folder. It opens nothing before a line is written.
func NewAudit(dir string) *Audit { return &Audit{dir: dir, max: auditMax} }

func (a *Audit) path() string { return filepath.Join(a.dir, auditFile) }

func (a *Audit) fail(err error) error {
	return hint.File(err, a.path()+": the audit log cannot be written",
		"give the user that runs headgate write access to the data folder, and check that the disk has free space")
}

// Close closes the file. A later Append opens it again.
func (a *Audit) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.close()
}

func (a *Audit) close() error {
	if a.f == nil {
		return nil
	}
	err := a.f.Close()
	a.f = nil
	return err
}

// ready opens the log, so that a change that could not be logged is rejected before it is made.
func (a *Audit) ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.open(); err != nil {
		return a.fail(err)
	}
	return nil
}

// open opens the file, and reopens it if it was moved away.
func (a *Audit) open() error {
	if a.f != nil {
		mine, err := a.f.Stat()
		there, err2 := os.Stat(a.path())
		if err == nil && err2 == nil && os.SameFile(mine, there) {
			return nil
		}
		a.close()
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(a.path(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	a.f = f
	if err := sameOwner(a.dir, f); err != nil {
		return err
	}
	return a.mend()
}

// mend ends a line that a crash or a full disk has cut off, so that the next one starts a new line.
func (a *Audit) mend() error {
	info, err := a.f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := a.f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = a.f.Write([]byte("\n"))
	return err
}

// Append adds a line and waits until it is on the disk.
func (a *Audit) Append(e *AuditEntry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.append(line); err != nil {
		a.close() // reopening ends a line that was cut off
		return a.fail(err)
	}
	return nil
}

func (a *Audit) append(line []byte) error {
	if err := a.open(); err != nil {
		return err
	}
	info, err := a.f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 && info.Size()+int64(len(line)) > a.max {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	if _, err := a.f.Write(line); err != nil {
		return err
	}
	return a.f.Sync()
}

// Newest reads the newest lines, newest first. It skips lines that were cut off.
func (a *Audit) Newest(most int) ([]AuditEntry, error) {
	all := []AuditEntry{}
	for n := 0; n <= auditKept && len(all) < most; n++ {
		path := a.path()
		if n > 0 {
			path = fmt.Sprintf("%s.%d", path, n)
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, hint.File(err, path+": cannot be read",
				"give the user that runs headgate read access to the data folder")
		}
		lines := bytes.Split(b, []byte("\n"))
		for _, line := range slices.Backward(lines) {
			var e AuditEntry
			if len(all) < most && json.Unmarshal(line, &e) == nil {
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// rotate renames the file to audit.log.1, and each older file to the next number.
func (a *Audit) rotate() error {
	a.close()
	aside := func(n int) string { return fmt.Sprintf("%s.%d", a.path(), n) }
	for n := auditKept - 1; n >= 1; n-- {
		if err := os.Rename(aside(n), aside(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(a.path(), aside(1)); err != nil {
		return err
	}
	if err := a.open(); err != nil {
		return err
	}
	return platform.SyncDir(a.dir)
}

// auditLimit returns a limit in the form of the audit log. Keys under overrides may be addresses or
// secrets, and many, so only their number is logged.
func auditLimit(l *ratelimit.Limit) map[string]string {
	if l == nil {
		return nil
	}
	s := shown(l)
	s.Overrides = nil
	b, err := json.Marshal(s)
	told := flat(b)
	if err == nil && len(l.Overrides) > 0 {
		told["overrides"] = strconv.Itoa(len(l.Overrides))
	}
	for plan, n := range l.Plans {
		told[ofPlan+plan] = strconv.FormatInt(n, 10)
	}
	return told
}
