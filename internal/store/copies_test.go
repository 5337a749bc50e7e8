package store

import (
	"bytes"
	"slices"
	"testing"
)

// Who reads the copies while they are written always finds a whole one, and never
// one that is older than what was whole before.
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
