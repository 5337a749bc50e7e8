package store

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// A reader of the copies always finds a whole one while they are being written, and never one that
// is older than a whole one before.
func TestCopiesAreWholeWhileTheyAreWritten(t *testing.T) {
	dir := t.TempDir()
	c, err := openCopies(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	value := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, 100<<10) }
	if err := c.write("k", 1, value(1)); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 2; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := c.write("k", uint64(n), value(n)); err != nil {
				done <- err
				return
			}
		}
	}()
	last := uint64(0)
	for range 200 {
		all, err := ReadCopies(dir)
		if err != nil || len(all) != 1 || !all[0].Whole() || all[0].Revision < last ||
			!bytes.Equal(all[0].Value, value(int(all[0].Revision))) {
			t.Fatalf("after %d: %d of %d bytes, slots %v, %v", last, all[0].Revision, len(all[0].Value),
				all[0].Slots, err)
		}
		last = all[0].Revision
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestWrittenCopiesFillAnEmptyEngine(t *testing.T) {
	d := newDisk(t)
	d.put("old", "x", 0)
	d.close()
	d.dir = t.TempDir()
	err := WriteCopies(d.path("records"),
		[]Copy{{Key: "a b", Value: []byte("one")}, {Key: "c", Value: []byte("two")}})
	if err != nil {
		t.Fatal(err)
	}
	d.open()
	rev := d.want("a b", "one")
	d.want("c", "two")
	d.put("a b", "three", rev)
	for _, line := range []string{
		`level=INFO msg="record taken from a backup" key="a b"`, `level=INFO msg="record taken from a backup" key=c`,
	} {
		if strings.Count(d.said.String(), line) != 1 {
			t.Errorf("the log does not say %s once:\n%s", line, d.said.String())
		}
	}
	if strings.Contains(d.said.String(), "repaired") {
		t.Errorf("nothing was damaged:\n%s", d.said.String())
	}
	d.close()
	d.open()
	d.want("a b", "three")
	keys, err := d.store.Keys(t.Context(), "")
	if err != nil || !slices.Equal(keys, []string{"a b", "c"}) {
		t.Errorf("%q, %v", keys, err)
	}
	if err := WriteCopies(d.path("records"), []Copy{{Key: "c"}}); err == nil {
		t.Error("a copy that was there is overwritten")
	}
}

// An engine that has lost its records counts as damaged, also when they once came from a backup,
// and when the newer file of a record is damaged too.
func TestWhatIsLostAfterARestoreIsARepair(t *testing.T) {
	for name, damage := range map[string]func(d *disk){
		"the engine": func(*disk) {},
		"and the newer copy": func(d *disk) {
			d.change(d.path("records/c~a"), func(b []byte) []byte { return b[:len(b)-1] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			d.close()
			d.dir = t.TempDir()
			if err := WriteCopies(d.path("records"), []Copy{{Key: "c", Value: []byte("two")}}); err != nil {
				t.Fatal(err)
			}
			d.open()
			d.want("c", "two")
			d.close()
			if err := os.RemoveAll(d.path("engine")); err != nil {
				t.Fatal(err)
			}
			damage(d)
			before := d.said.Len()
			d.open()
			d.want("c", "two")
			const line = `level=ERROR msg="record repaired from its second copy" key=c`
			if said := d.said.String()[before:]; !strings.Contains(said, line) {
				t.Errorf("the log does not say %s:\n%s", line, said)
			}
		})
	}
}
