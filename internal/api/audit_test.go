package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// lines reads a file of the audit log.
func lines(t *testing.T, path string) []AuditEntry {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []AuditEntry
	s := bufio.NewScanner(f)
	for s.Scan() {
		var e AuditEntry
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatalf("%s: %s: %v", path, s.Text(), err)
		}
		all = append(all, e)
	}
	return all
}

func TestTheAuditLogIsSetAside(t *testing.T) {
	a := NewAudit(t.TempDir())
	defer a.Close()
	a.max = 1000
	for n := range 100 {
		if err := a.Append(&AuditEntry{What: fmt.Sprint(n), Result: strings.Repeat("x", 50)}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(a.path() + "*")
	if err != nil || len(files) != 1+auditKept {
		t.Fatalf("%v %v", files, err)
	}
	next := 100 // newest to oldest, without gaps
	for n := range 1 + auditKept {
		path := a.path()
		if n > 0 {
			path += fmt.Sprint(".", n)
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() > a.max || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, info, err)
		}
		all := lines(t, path)
		for i := range all {
			next--
			if e := all[len(all)-1-i]; e.What != fmt.Sprint(next) {
				t.Fatalf("%s: got line %s, want %d", path, e.What, next)
			}
		}
	}
	if next > 70 {
		t.Errorf("only lines from %d on are kept", next)
	}
}

func TestAnAuditLineThatWasCutDoesNotSpoilTheNext(t *testing.T) {
	a := NewAudit(t.TempDir())
	defer a.Close()
	if err := os.WriteFile(a.path(), []byte(`{"what":"cut`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Append(&AuditEntry{What: "next"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(a.path())
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\n")
	var e AuditEntry
	if err := json.Unmarshal([]byte(rest), &e); err != nil || e.What != "next" {
		t.Errorf("%q: %v", b, err)
	}
}

func TestAnAuditLogThatWasMovedAwayIsBegunAnew(t *testing.T) {
	a := NewAudit(t.TempDir())
	defer a.Close()
	for n := range 3 {
		if err := a.Append(&AuditEntry{What: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(a.path(), fmt.Sprint(a.path(), ".away.", n)); err != nil {
			t.Fatal(err)
		}
	}
	if got := lines(t, a.path()+".away.2"); len(got) != 1 || got[0].What != "2" {
		t.Errorf("%+v", got)
	}
}

// The process and a command write at the same time, each with the file open.
func TestTwoWriteTheAuditLog(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			a := NewAudit(dir)
			defer a.Close()
			for n := range 25 {
				if err := a.Append(&AuditEntry{What: fmt.Sprint(w, "/", n)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := lines(t, filepath.Join(dir, auditFile)); len(got) != 100 {
		t.Errorf("%d lines, want 100", len(got))
	}
}
