package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

const aKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 2026-01-02T03:04:05Z\n"

// sample is a good backup.
func sample() *manifest {
	m := &manifest{Format: backupFormat, Version: "v1", MadeAt: time.Unix(1e9, 0).UTC(), Running: true,
		Members: []member{
			{Name: formatName, body: []byte("headgate-data 1\n")},
			{Name: "records/counter.shop", body: sampleRecord(), Written: time.Unix(1e9-5, 0).UTC()},
			{Name: "records/live.shop", body: []byte("null")},
			{Name: "keys/001.key", body: []byte(aKey)},
			{Name: tokensName, body: []byte(`{"tokens":[]}`)},
		}}
	return m
}

func sampleRecord() []byte { return recordOf(1) }

// recordOf is the record of the n-th write.
func recordOf(n uint64) []byte {
	r := slot.NewRecord(7, nil, slot.Limit{Kind: slot.AtOnce, N: 2, Per: time.Minute},
		slot.Limit{Kind: slot.PerWindow, N: 100, Per: time.Minute})
	r.Time, r.Next, r.Issued, r.Frontier = slot.Time(time.Hour), 50, 47, 40
	r.Lanes = []slot.LanePart{{Lane: slot.Lane{Name: "vip", Share: 9}, Next: 1<<38 + 9, Issued: 1<<38 + 8,
		Frontier: 1<<38 + 5}}
	r.Limits[0].Ends.Add(r.Time.Add(30*time.Second), 1)
	r.Limits[0].Ends.Add(r.Time.Add(50*time.Second), 1)
	r.Name.Writes = n
	b, err := r.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	return b
}

func packed(t testing.TB, m *manifest) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tarOf is a tar.gz of whatever files.
func tarOf(t testing.TB, files ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		h, ok := files[i].(*tar.Header)
		if !ok {
			h = &tar.Header{Typeflag: tar.TypeReg, Name: files[i].(string)}
		}
		body, _ := files[i+1].(string)
		h.Size = int64(len(body))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestABackupIsReadBack(t *testing.T) {
	m, err := readManifest(bytes.NewReader(packed(t, sample())))
	if err != nil {
		t.Fatal(err)
	}
	want := sample()
	if len(m.Members) != len(want.Members) || m.Version != "v1" || !m.MadeAt.Equal(want.MadeAt) {
		t.Fatalf("%+v", m)
	}
	for i := range want.Members {
		if m.Members[i].Name != want.Members[i].Name ||
			!bytes.Equal(m.Members[i].body, want.Members[i].body) {
			t.Errorf("%+v", m.Members[i])
		}
	}
}

// Nothing but a whole, unchanged backup is taken, and nothing is written before.
func TestWhatIsNotABackupIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	good := packed(t, sample())
	with := func(change func(m *manifest)) []byte {
		m := sample()
		change(m)
		return packed(t, m)
	}
	text := func(m *manifest) string {
		for i := range m.Members {
			m.Members[i].seal()
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	small := &manifest{Format: 1, Members: []member{{Name: formatName, body: []byte("headgate-data 1\n")},
		{Name: "keys/001.key", body: []byte(aKey)}}}
	head := text(small)
	const format = "headgate-data 1\n"
	flipped := bytes.Clone(good)
	flipped[len(good)/2] ^= 1
	link := &tar.Header{Typeflag: tar.TypeSymlink, Name: formatName, Linkname: "/etc/passwd"}
	for name, b := range map[string][]byte{
		"nothing":        nil,
		"a text":         []byte("hello"),
		"no manifest":    tarOf(t, formatName, format),
		"a changed byte": flipped,
		"cut off":        good[:len(good)-20],
		"another body": tarOf(t, manifestName, head, formatName, format, "keys/001.key",
			strings.Replace(aKey, "00", "01", 1)),
		"one too few": tarOf(t, manifestName, head, formatName, format),
		"one too many": tarOf(t, manifestName, head, formatName, format, "keys/001.key", aKey,
			"x", "y"),
		"another order":   tarOf(t, manifestName, head, "keys/001.key", aKey, formatName, format),
		"a link":          tarOf(t, manifestName, head, link, nil),
		"a path outside":  with(func(m *manifest) { m.Members[1].Name = "../evil" }),
		"an absolute one": with(func(m *manifest) { m.Members[1].Name = "/evil" }),
		"one in a folder": with(func(m *manifest) { m.Members[1].Name = "records/../../evil" }),
		"a hidden one":    with(func(m *manifest) { m.Members[1].Name = "records/.evil" }),
		"twice the same":  with(func(m *manifest) { m.Members[2] = m.Members[1] }),
		"another file":    with(func(m *manifest) { m.Members[2].Name = "audit.log" }),
		"no format":       with(func(m *manifest) { m.Members = m.Members[1:] }),
		"no keys":         with(func(m *manifest) { m.Members = m.Members[:3] }),
		"a newer backup":  with(func(m *manifest) { m.Format = 2 }),
		"a newer folder":  with(func(m *manifest) { m.Members[0].body = []byte("headgate-data 2\n") }),
		"no record":       with(func(m *manifest) { m.Members[1].body = []byte("junk") }),
		"a newer record":  with(func(m *manifest) { m.Members[1].body[0] = slot.Version + 1 }),
		"no key":          with(func(m *manifest) { m.Members[3].body = []byte("junk") }),
		"no tokens":       with(func(m *manifest) { m.Members[4].body = []byte("junk") }),
		"far too large":   with(func(m *manifest) { m.Members[2].body = make([]byte, maxMember+1) }),
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			_, err := Restore(bytes.NewReader(b), RestoreConfig{Dir: dir, Now: time.Now()})
			if err == nil {
				t.Fatal("taken")
			}
			if e, ok := errors.AsType[*hint.Error](err); !ok || e.Do == "" {
				t.Errorf("%v: no hint", err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Error("something was written")
			}
			if evil, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*evil*")); len(evil) > 0 {
				t.Errorf("%q", evil)
			}
		})
	}
}

// What comes back may be older than what was told: see late.
func TestARestoredRecordLetsNobodyNewInAndGivesNoNumberTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	now := time.Unix(1e9+100, 0)
	got, err := Restore(bytes.NewReader(packed(t, sample())), RestoreConfig{Dir: dir, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.ReadCopies(filepath.Join(dir, "records"))
	if err != nil || len(all) != 2 || all[0].Key != "counter.shop" || string(all[1].Value) != "null" {
		t.Fatalf("%+v, %v", all, err)
	}
	var was, is slot.Record
	if err := errors.Join(was.UnmarshalBinary(sampleRecord()), is.UnmarshalBinary(all[0].Value)); err != nil {
		t.Fatal(err)
	}
	// 105 s went by since the record was written, on a clock that may be slow.
	if d := is.Time.Sub(was.Time); d < 105*time.Second || d > 106*time.Second {
		t.Errorf("counter time went on by %v", d)
	}
	if !is.Quiet || is.Next != was.Next+mostSkipped || is.Issued != was.Issued ||
		is.Frontier != was.Frontier || is.Name.Life != was.Name.Life || is.Name.Epoch <= was.Name.Epoch+1000 {
		t.Errorf("%+v", is)
	}
	if x := is.Lanes[0]; x.Next != was.Lanes[0].Next+mostSkipped || x.Issued != was.Lanes[0].Issued {
		t.Errorf("of a lane %+v", x)
	}
	r := got.Rooms[0]
	if r.Name != "shop" || r.Inside != 0 || r.Quiet < 75*time.Second || r.Quiet > 77*time.Second {
		t.Errorf("%+v", r) // T + S
	}
	if v, err := datadir.Format(dir); v != 1 || err != nil {
		t.Errorf("format %d, %v", v, err)
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, "keys": 0o700, "keys/001.key": 0o600,
		"records": 0o700, "records/counter.shop~b": 0o600, "tokens.json": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	// An old folder tells when a visitor can have been told anything for the last
	// time: the time after that is nobody's.
	stale := time.Unix(1e9+30, 0)
	if err := os.Chtimes(filepath.Join(dir, "records", "counter.shop~b"), stale, stale); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "records", "live.shop~b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "engine"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err = Restore(bytes.NewReader(packed(t, sample())), RestoreConfig{Dir: dir, Now: now, Aside: true})
	if err != nil || got.Aside == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := got.Rooms[0]; r.Inside != 1 { // 35 s after the record one of two has left
		t.Errorf("%+v", r)
	}
}

// A restore that was broken off leaves nothing that headgate would run on.
func TestNobodyStartsInAFolderThatIsHalfRestored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	w, err := datadir.Fill(dir)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if f, err := datadir.Open(dir); err == nil {
		f.Close()
		t.Fatal("opened")
	} else if !strings.Contains(err.Error(), "broken off") {
		t.Error(err)
	}
}

func FuzzReadManifest(f *testing.F) {
	f.Add(packed(f, sample()))
	f.Add(tarOf(f, manifestName, `{"backup_format":1,"members":[{"name":"format"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readManifest(bytes.NewReader(b))
		if err != nil {
			return
		}
		for i := range m.Members {
			if !allowed(m.Members[i].Name) || len(m.Members[i].body) > maxMember {
				t.Fatalf("%q", m.Members[i].Name)
			}
		}
		_ = m.understood() // must not panic
	})
}
