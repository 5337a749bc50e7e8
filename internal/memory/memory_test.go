package memory

import (
	"runtime"
	"testing"
)

func TestGarbageIsBoundedByBytesWhenMuchLives(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {10 << 20, 400}, {20 << 20, 400}, {40 << 20, 200}, {80 << 20, 100}, {1 << 30, 50}} {
		if got := garbagePercent(c.live); got != c.want {
			t.Errorf("of %d MB that live: %d %%, want %d", c.live>>20, got, c.want)
		}
	}
}

func TestMemoryIsGivenBackOnceAfterABurst(t *testing.T) {
	for what, c := range map[string]struct {
		now, last, cleaned reading
		want               bool
	}{
		"a burst that is over":    {reading{7, 900 << 20}, reading{7, 899 << 20}, reading{2, 300 << 20}, true},
		"a burst that goes on":    {reading{8, 900 << 20}, reading{7, 700 << 20}, reading{2, 300 << 20}, false},
		"nothing since the last":  {reading{7, 905 << 20}, reading{7, 903 << 20}, reading{7, 900 << 20}, false},
		"a little since the last": {reading{7, 999 << 20}, reading{7, 980 << 20}, reading{7, 900 << 20}, false},
	} {
		if got := c.now.isQuietAfterBurst(c.last, c.cleaned); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	before := read()
	kept := make([]byte, 8<<20)
	runtime.GC()
	now := read()
	if now.collections <= before.collections || now.allocated < before.allocated+uint64(len(kept)) {
		t.Errorf("the counters went from %+v to %+v", before, now)
	}
}
