package lending

import (
	"flag"
	"testing"
)

var hunts = flag.Int("hunt", 300, "cases of the hunt")
var huntSeed = flag.Uint64("hunt-seed", 1, "of the first case")

func TestHunt(t *testing.T) {
	f, err := Hunt(t.Context(), HuntOptions{N: *hunts, Seed: *huntSeed})
	if err != nil {
		t.Fatal(err)
	}
	if f != nil {
		t.Fatalf("after %d cases: %s\nheadgate simulate --replay %s", f.Tried, f.Broken, f.Case)
	}
}
