package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// used is a data folder as a headgate leaves it that was stopped: one room, some
// writes.
func used(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	f, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Keys(); err != nil {
		t.Fatal(err)
	}
	e, err := embedded.Open(t.Context(), embedded.Config{Dir: f.Engine()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := store.OpenNATS(t.Context(), store.NATSConfig{Conn: e.Conn(), Copies: f.Records()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for key, n := range map[string]int{"counter.shop": 5, "live.shop": 1} {
		rev := uint64(0)
		for i := range n {
			if rev, err = s.CompareAndSwap(t.Context(), key, rev, recordOf(uint64(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// all is every file below a folder.
func all(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		m[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func edit(t *testing.T, path string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func bad(b []byte) []byte { b[len(b)-1] ^= 1; return b }

// find returns the worst line of a check.
func (r *Report) find(name string) (worst Check) {
	order := []State{OK, Skipped, Warning, Fault}
	for _, c := range r.Checks {
		if c.Name == name && (worst.Name == "" ||
			slices.Index(order, c.State) > slices.Index(order, worst.State)) {
			worst = c
		}
	}
	return worst
}

func TestExamine(t *testing.T) {
	for _, x := range []struct {
		name  string
		do    func(t *testing.T, dir string)
		check string
		state State
		what  string
	}{
		{"all is well", nil, "engine", OK, "it holds what the copies hold"},
		{"keys", nil, "sealing keys", OK, "1, the newest 0 h old"},
		{"nothing there", func(t *testing.T, dir string) { os.RemoveAll(dir) },
			"folder", Fault, "is not there"},
		{"another folder", func(t *testing.T, dir string) { os.Remove(dir + "/format") },
			"folder", Fault, "is no data folder"},
		{"newer", func(t *testing.T, dir string) {
			edit(t, dir+"/format", func([]byte) []byte { return []byte("headgate-data 3\n") })
		}, "folder", Fault, "of a newer headgate (format 3"},
		{"open to all", func(t *testing.T, dir string) { os.Chmod(dir, 0o755) },
			"folder", Warning, "mode 0755"},
		{"key open to all", func(t *testing.T, dir string) { os.Chmod(dir+"/keys/001.key", 0o644) },
			"sealing keys", Fault, "mode 0644"},
		{"no keys", func(t *testing.T, dir string) { os.RemoveAll(dir + "/keys") },
			"sealing keys", Fault, "every visitor is a newcomer"},
		{"damaged key", func(t *testing.T, dir string) {
			edit(t, dir+"/keys/001.key", func([]byte) []byte { return []byte("x") })
		}, "sealing keys", Fault, "001.key is damaged"},
		{"damaged tokens", func(t *testing.T, dir string) {
			os.WriteFile(dir+"/tokens.json", []byte("{"), 0o600)
		}, "tokens", Fault, "is damaged"},
		{"one copy", func(t *testing.T, dir string) { edit(t, dir+"/records/counter.shop~a", bad) },
			"records", Warning, "the other copy of the record of room shop is whole"},
		{"both copies", func(t *testing.T, dir string) {
			edit(t, dir+"/records/counter.shop~a", bad)
			edit(t, dir+"/records/counter.shop~b", bad)
		}, "records", Warning, "no copy of the record of room shop is whole"},
		{"nothing at all", func(t *testing.T, dir string) {
			edit(t, dir+"/records/counter.shop~a", bad)
			edit(t, dir+"/records/counter.shop~b", bad)
			os.RemoveAll(dir + "/engine")
		}, "engine", Fault, "the record of room shop is lost"},
		{"engine gone", func(t *testing.T, dir string) { os.RemoveAll(dir + "/engine") },
			"engine", OK, "fills it"},
		{"block damaged", func(t *testing.T, dir string) {
			os.Remove(one(t, dir, "index.db"))
			edit(t, one(t, dir, "*.blk"), func(b []byte) []byte { return b[:len(b)/2] })
		}, "engine", Warning, "the engine has lost the record of room shop"},
		{"description gone", func(t *testing.T, dir string) { os.Remove(one(t, dir, "../meta.inf")) },
			"engine", Warning, "the engine is damaged: Missing stream metafile"},
		{"killed", func(t *testing.T, dir string) {
			edit(t, one(t, dir, "index.db"), func([]byte) []byte { return nil })
		}, "engine", OK, ""},
		{"a record too new", func(t *testing.T, dir string) {
			os.RemoveAll(dir + "/records")
			store.WriteCopies(dir+"/records", []store.Copy{{Key: "counter.shop", Value: []byte{slot.Version + 1, 1}}})
		}, "records", Fault, fmt.Sprintf("format %d, this program reads %d", slot.Version+1, slot.Version)},
		{"put aside", func(t *testing.T, dir string) { os.Mkdir(dir+"/engine.damaged-1", 0o700) },
			"left aside", Warning, "rm -r"},
		{"a certificate", func(t *testing.T, dir string) {
			os.Mkdir(dir+"/certs", 0o700)
			os.WriteFile(dir+"/certs/shop.pem", []byte("-----BEGIN CERTIFICATE-----"), 0o600)
		}, "certificates", Fault, "shop.pem"},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := used(t)
			if x.do != nil {
				x.do(t, dir)
			}
			var before map[string]string
			if _, err := os.Stat(dir); err == nil {
				before = all(t, dir)
			}
			r := Examine(t.Context(), Config{Data: dir, Temp: t.TempDir()})
			c := r.find(x.check)
			if c.State != x.state || !strings.Contains(c.What+"\n"+c.Do, x.what) {
				t.Errorf("%+v, want %s, %q", c, x.state, x.what)
			}
			if r.OK != !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.State == Fault }) {
				t.Errorf("ok %v of %+v", r.OK, r.Checks)
			}
			for _, c := range r.Checks {
				if (c.State == Fault || c.State == Warning) && c.Do == "" {
					t.Errorf("%+v does not say what to do", c)
				}
			}
			if before != nil && !maps.Equal(before, all(t, dir)) {
				t.Error("something was changed")
			}
		})
	}
}

func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "engine/jetstream/*/streams/*/msgs", pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return found[0]
}

func TestAnEngineThatIsTooLargeIsLeftAlone(t *testing.T) {
	r := Examine(t.Context(), Config{Data: used(t), maxCopy: 10, lowSpace: 1 << 62})
	if c := r.find("engine"); c.State != Skipped || !strings.Contains(c.What, "up to") {
		t.Errorf("%+v", c)
	}
	if c := r.find("free space"); c.State != Warning {
		t.Errorf("%+v", c)
	}
}

func TestAFolderInUseIsLeftAlone(t *testing.T) {
	dir := used(t)
	f, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pid, held, err := datadir.InUse(dir)
	if pid != os.Getpid() && pid != 0 || !held || err != nil {
		t.Errorf("%d %v %v", pid, held, err)
	}
	if c := Examine(t.Context(), Config{Data: dir}).find("engine"); c.State != Skipped {
		t.Errorf("%+v", c)
	}
	var b bytes.Buffer
	got, err := Take(dir, "v1")
	if err != nil || !got.Running {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := got.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	_, err = Restore(&b, RestoreConfig{Dir: dir, Aside: true, Now: time.Now()})
	if err == nil || !strings.Contains(err.Error(), "works in") {
		t.Error(err)
	}
}

// A backup holds the newest whole copy of each record, and says what it has not.
func TestTake(t *testing.T) {
	dir := used(t)
	got, err := Take(dir, "v1")
	if err != nil || !bytes.Equal(got.manifest.find("records/counter.shop").body, recordOf(4)) {
		t.Fatalf("%+v, %v", got, err)
	}
	edit(t, dir+"/records/counter.shop~b", bad) // written last: 5 writes
	got, err = Take(dir, "v1")
	if err != nil || len(got.Warnings) != 1 || len(got.Damaged) > 0 || got.Keys != 1 || got.Running {
		t.Fatalf("%+v, %v", got, err)
	}
	if m := got.manifest.find("records/counter.shop"); m == nil || !bytes.Equal(m.body, recordOf(3)) {
		t.Errorf("%+v", m)
	}
	edit(t, dir+"/records/counter.shop~a", bad)
	got, err = Take(dir, "v1")
	if err != nil || len(got.Damaged) != 1 || got.Damaged[0].Key != "counter.shop" ||
		got.manifest.find("records/live.shop") == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if err := got.Save(file, false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := got.Save(file, false); err == nil {
		t.Error("overwritten")
	}
	if err := got.Save(file, true); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Dir(file) + "/.*"); len(left) > 0 {
		t.Errorf("%q", left)
	}
	if _, err := Take(t.TempDir(), "v1"); err == nil {
		t.Error("an empty folder")
	}
	if err := os.Remove(dir + "/keys/001.key"); err != nil {
		t.Fatal(err)
	}
	if e, ok := errors.AsType[*hint.Error](func() error { _, err := Take(dir, "v1"); return err }()); !ok ||
		!strings.Contains(e.Text, "no sealing key") {
		t.Errorf("%v", e)
	}
}
