package quota

import (
	"reflect"
	"testing"
)

// Two parts share no cache line, so that decisions in one do not slow down the other. The fields
// that each decision writes, besides the entry of the key, are in the first line.
func TestPartsShareNoCacheLine(t *testing.T) {
	const line = 64
	of := reflect.TypeFor[part]()
	if of.Size()%line != 0 {
		t.Errorf("a part takes %d bytes, want a multiple of %d: give it padding", of.Size(), line)
	}
	table, _ := of.FieldByName("table")
	asked, ok := table.Type.FieldByName("asked")
	if !ok {
		t.Fatal("a table does not count what it is asked")
	}
	if end := table.Offset + asked.Offset + asked.Type.Size(); end > line {
		t.Errorf("what a decision writes ends at byte %d of its part, want %d at most", end, line)
	}
}
