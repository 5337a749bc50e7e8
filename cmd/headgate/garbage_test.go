package main

import "testing"

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
