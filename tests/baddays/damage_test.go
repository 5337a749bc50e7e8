//go:build kills || soak

package baddays

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// sums are the hashes of all files below a folder.
func (s *site) sums(dir string) map[string]string {
	s.t.Helper()
	all := map[string]string{}
	s.must(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = fmt.Sprintf("%x", sha256.Sum256(b))
		return err
	}))
	return all
}

// one is the newest file that a pattern below the data folder finds.
func (s *site) one(pattern string) string {
	s.t.Helper()
	all, err := filepath.Glob(filepath.Join(s.data, pattern))
	s.must(err)
	if len(all) == 0 {
		s.t.Fatalf("no file %s", pattern)
	}
	return all[len(all)-1]
}

func (s *site) change(file string, how func([]byte) []byte) {
	s.t.Helper()
	b, err := os.ReadFile(file)
	s.must(err)
	s.must(os.WriteFile(file, how(bytes.Clone(b)), 0o600))
}

func flip(b []byte) []byte { b[len(b)/2] ^= 4; return b }
func half(b []byte) []byte { return b[:len(b)/2] }

const stream = "engine/jetstream/*/streams/HEADGATE/"

// newestCopy is the file that was written last of a record's second copy.
func (s *site) newestCopy(key string) string {
	s.t.Helper()
	a, b := filepath.Join(s.data, "records", key+"~a"), filepath.Join(s.data, "records", key+"~b")
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	s.must(errors.Join(err, err2))
	if x.ModTime().After(y.ModTime()) {
		return a
	}
	return b
}

// One damaged part loses nothing: it is repaired from another, and told.
func TestOneDamagedPart(t *testing.T) {
	noIndex := func(s *site) { // a kill leaves none, a clean stop does
		all, err := filepath.Glob(filepath.Join(s.data, stream+"msgs/index.db"))
		s.must(err)
		for _, f := range all {
			s.must(os.Remove(f))
		}
	}
	for _, d := range []struct {
		name   string
		damage func(s *site)
		before string // doctor, while headgate is stopped
		log    string
		after  string // doctor, when it runs again
	}{
		{"block cut short", func(s *site) { noIndex(s); s.change(s.one(stream+"msgs/*.blk"), half) },
			"nothing is lost: headgate run repairs it", "record repaired from its second copy", ""},
		{"bit in the block", func(s *site) { noIndex(s); s.change(s.one(stream+"msgs/*.blk"), flip) },
			"nothing is lost: headgate run repairs it", "record repaired from its second copy", ""},
		{"block gone", func(s *site) { noIndex(s); s.must(os.Remove(s.one(stream + "msgs/*.blk"))) },
			"nothing is lost: headgate run repairs it", "record repaired from its second copy", ""},
		{"no description", func(s *site) {
			s.must(os.Remove(s.one(stream + "meta.inf")))
			s.must(os.Remove(s.one(stream + "meta.sum")))
		}, "the engine is damaged: Missing stream metafile", "Missing stream metafile", ""},
		{"bit in the description", func(s *site) {
			s.change(s.one(stream+"meta.inf"), func(b []byte) []byte { b[20] ^= 0x10; return b })
		}, "the engine is damaged: Stream metafile", "checksums do not match", ""},
		{"newest second copy", func(s *site) { s.change(s.newestCopy("counter.shop"), flip) },
			"the other copy of the record of room shop is whole", "", ""},
		{"both second copies", func(s *site) {
			s.change(s.one("records/counter.shop~a"), flip)
			s.change(s.one("records/counter.shop~b"), half)
		}, "no copy of the record of room shop is whole", "", ""},
		{"engine is a file", func(s *site) {
			s.must(os.RemoveAll(filepath.Join(s.data, "engine/jetstream")))
			s.must(os.WriteFile(filepath.Join(s.data, "engine/jetstream"), []byte("x"), 0o600))
		}, "the engine is damaged", "put aside", "engine.damaged-"},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.start()
			c := s.crowd("/")
			s.kill()
			s.doctor(0)
			d.damage(s)
			before := s.sums(s.data)
			s.doctor(0, d.before)
			if !maps.Equal(before, s.sums(s.data)) {
				t.Error("doctor has changed something")
			}
			s.start()
			c.check()
			if !strings.Contains(s.said(), d.log) {
				t.Errorf("the log does not say %q", d.log)
			}
			s.rest(3*time.Second, c.check)
			s.doctor(0, d.after)
			s.stop()
			s.doctor(0, d.after) // mended, and what was put aside is told
			s.start()
			c.check()
		})
	}
}

// A room whose record nobody has is shut, and says so; the others go on.
func TestARecordThatIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	tea, shop := s.crowd("/tea"), s.crowd("/")
	s.wants(0, []string{"2 rooms (shop, tea)"}, "backup", "--config", s.config, "backup.tar.gz")
	s.kill()
	s.must(os.RemoveAll(filepath.Join(s.data, "engine")))
	s.change(s.one("records/counter.shop~a"), flip)
	s.change(s.one("records/counter.shop~b"), flip)
	s.doctor(1, "the record of room shop is lost", "headgate restore --aside --data "+s.data,
		"rm -r "+filepath.Join(s.data, "records", "counter.shop~")+"* "+filepath.Join(s.data, "engine"))
	s.wants(1, []string{"record counter.shop is not in the backup", "1 room (tea)"},
		"backup", "--config", s.config, "--force", "worse.tar.gz")

	s.start()
	tea.check()
	s.held("/")
	for _, v := range append(shop.in, shop.line...) {
		kept := v.cookie
		if a := v.enter(); a.State == "inside" || a.RetryAfter == "" || v.cookie != kept {
			t.Errorf("%s gets %+v, or another cookie", v.name, a)
		}
	}
	if !strings.Contains(s.said(), "record cannot be read") {
		t.Error("the log does not say so")
	}
	s.doctor(1, "room shop is shut")
	s.stop()
	s.doctor(1, "the record of room shop is lost")

	// Either way out.
	s.wants(0, []string{"room shop: places are kept"}, "restore", "--config", s.config, "--aside",
		"backup.tar.gz")
	s.start()
	shop.check()
	tea.check()
	s.stop()
	copies, err := filepath.Glob(filepath.Join(s.data, "records", "counter.shop~*"))
	s.must(err)
	for _, f := range append(copies, filepath.Join(s.data, "engine")) {
		s.must(os.RemoveAll(f))
	}
	s.start()
	tea.check()
	s.crowd("/")
}

// What a newer headgate has written is left as it is.
func TestNewerVersion(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	c := s.crowd("/")
	s.stop()
	format := filepath.Join(s.data, "format")
	s.must(os.WriteFile(format, []byte("headgate-data 2\n"), 0o600))
	before := s.sums(s.data)
	s.wants(1, []string{"newer headgate (format 2", "hint: run the newer headgate"},
		"run", "--config", s.config)
	s.doctor(1, "newer headgate (format 2")
	s.wants(1, []string{"newer headgate"}, "backup", "--config", s.config, "b.tar.gz")
	if !maps.Equal(before, s.sums(s.data)) {
		t.Error("something has changed")
	}
	s.must(os.WriteFile(format, []byte("headgate-data 1\n"), 0o600))

	// A record alone: that of the shop is of the next format, the engine takes it over.
	all, err := store.ReadCopies(filepath.Join(s.data, "records"))
	s.must(err)
	for i := range all {
		if all[i].Key == "counter.shop" {
			all[i].Value = append([]byte{slot.Version + 1}, all[i].Value[1:]...)
		}
	}
	s.must(os.RemoveAll(filepath.Join(s.data, "records")))
	s.must(os.RemoveAll(filepath.Join(s.data, "engine")))
	s.must(store.WriteCopies(filepath.Join(s.data, "records"), all))
	newer := fmt.Sprintf("format %d, this program reads %d", slot.Version+1, slot.Version)
	s.doctor(1, newer)
	s.start()
	s.held("/")
	if a := c.in[0].enter(); a.State == "inside" {
		t.Error("let in by a record that cannot be read")
	}
	if !strings.Contains(s.said(), newer+": run the newer program") {
		t.Error("the log does not say so")
	}
	tea := s.crowd("/tea")
	tea.check()
	s.stop()
	now, err := store.ReadCopies(filepath.Join(s.data, "records"))
	s.must(err)
	for i := range now {
		if now[i].Key == "counter.shop" && !bytes.Equal(now[i].Value, all[i].Value) {
			t.Error("the record has changed")
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	c := s.crowd("/")
	s.stop()
	key := s.one("keys/*.key")

	s.must(os.Chmod(key, 0o640))
	s.wants(1, []string{"may be read by others (mode 0640)", "hint: chmod go-rwx " + key},
		"run", "--config", s.config)
	s.doctor(1, "chmod go-rwx "+key)
	s.must(os.Chmod(key, 0o600))

	good, err := os.ReadFile(key)
	s.must(err)
	s.must(os.WriteFile(key, []byte("nonsense\n"), 0o600))
	s.wants(1, []string{key + " is damaged", "hint: bring it back from a backup"},
		"run", "--config", s.config)
	s.doctor(1, key+" is damaged")
	s.must(os.WriteFile(key, good, 0o600))
	s.start()
	c.check()
	s.stop()

	// Nobody can open what the visitors hold: that is said loudly.
	s.must(os.RemoveAll(filepath.Join(s.data, "keys")))
	s.doctor(1, "every visitor is a newcomer")
	s.start()
	if log := s.said(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "newcomer") {
		t.Error("the log does not say that everybody is a newcomer now")
	}
}

func TestTwoProcessesInOneFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	c := s.crowd("/")
	s.wants(1, []string{"another headgate works in it", "hint: stop that one"}, "run", "--config", s.config,
		"--listen", loopback.Free(t), "--admin-listen", loopback.Free(t))
	c.check()
}

// A backup of a room that goes on, brought back somewhere else.
func TestRestore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	c := s.crowd("/")
	s.wants(0, []string{"2 rooms (shop, tea)", "keep it like a password"}, "backup", "--config", s.config,
		"backup.tar.gz")
	// What the backup cannot know: one leaves, the next comes in, another joins.
	after := &visitor{s: s, path: "/", name: "a visitor who came after the backup"}
	after.enter()
	after.ticket = after.poll().Ticket
	s.wants(1, []string{"works in", "hint: stop it first"}, "restore", "--config", s.config, "--aside",
		"backup.tar.gz")
	s.rest(3*time.Second, c.check)
	s.kill()
	s.wants(1, []string{"is not empty", "--aside"}, "restore", "--config", s.config, "backup.tar.gz")
	s.wants(0, []string{"room shop: places are kept and passes honored until they end (2 inside); " +
		"nobody new for 1m1"}, "restore", "--config", s.config, "--aside", "backup.tar.gz")
	s.doctor(0, "was put aside by a restore")
	s.start()
	c.check()
	if a := after.poll(); a.State != "waiting" || a.Ticket != after.ticket {
		t.Errorf("a ticket from after the backup: %+v, was %s", a, after.ticket)
	}
	if q := s.record("shop").Quiet; q < 60 || q > 80 {
		t.Errorf("quiet for %v s", q)
	}
	if q := s.record("tea").Quiet; q < 60 {
		t.Errorf("tea is quiet for %v s", q)
	}
	s.held("/tea") // though it is empty
	fresh := &visitor{s: s, path: "/", name: "a newcomer"}
	fresh.enter()
	if a := fresh.poll(); a.Ticket == after.ticket || a.Position < 4 || a.Position > 6 {
		t.Errorf("a newcomer behind four: %+v", a)
	}
	s.doctor(0, "room shop: newcomers are not admitted for another")
	s.kill()
	s.start()
	c.check()
	if q := s.record("shop").Quiet; q < 60 {
		t.Errorf("after a kill quiet for %v s", q)
	}
	guest := &visitor{s: s, path: "/tea", name: "a guest"}
	s.until(100*time.Second, "tea lets somebody in", func() bool {
		c.check()
		quiet := s.record("tea").Quiet > 0
		in := guest.enter().State == "inside"
		if in && quiet {
			t.Fatal("let in while it was quiet")
		}
		return in
	})
}
