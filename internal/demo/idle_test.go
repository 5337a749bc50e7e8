package demo

import (
	"testing"
	"time"
)

func TestIdle(t *testing.T) {
	limits := Limits{AtOnce: 20, PerMinute: 180}
	begun := time.Now()
	all := line{waits: true, asks: true, quorate: true}
	type at struct {
		second int
		line   line
		here   int
		fresh  int
		last   int // the second somebody was let in last
	}
	tests := []struct {
		name                  string
		looks                 []at
		longest, served, calm time.Duration
	}{
		{"somebody waits before a free slot", []at{{0, all, 19, 0, 0}, {5, all, 19, 0, 0}}, 5, 5, 5},
		{"who is let in ends it", []at{{0, all, 19, 0, 0}, {5, all, 19, 0, 4}, {7, all, 19, 0, 4}}, 3, 3, 7},
		{"a full room is not idle", []at{{0, all, 20, 0, 0}, {5, all, 20, 0, 0}}, 0, 0, 5},
		{"nor is one whose minute is", []at{{0, all, 3, 180, 0}, {5, all, 3, 180, 0}}, 0, 0, 5},
		{"nor is one for which nobody waits", []at{{0, line{quorate: true}, 3, 0, 0},
			{5, line{quorate: true}, 3, 0, 0}}, 0, 0, 5},
		{"two nodes down", []at{{0, line{waits: true, asks: true}, 9, 0, 0},
			{9, line{waits: true, asks: true}, 9, 0, 0}, {11, all, 9, 0, 0}, {14, all, 9, 0, 0}}, 14, 3, 3},
		{"nobody is heard", []at{{0, line{waits: true, quorate: true}, 9, 0, 0},
			{40, line{waits: true, quorate: true}, 9, 0, 0}}, 40, 0, 40},
	}
	for _, tt := range tests {
		i := idle{}
		for _, a := range tt.looks {
			second := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Second) }
			r := &report{Here: a.here, LastMinute: a.fresh, Last: second(a.last)}
			i.see(second(a.second), r, limits, a.line)
		}
		if i.Longest != tt.longest*time.Second || i.Served != tt.served*time.Second ||
			i.Calm != tt.calm*time.Second {
			t.Errorf("%s: longest %v, served %v, calm %v; want %d, %d, %d s", tt.name, i.Longest, i.Served,
				i.Calm, tt.longest, tt.served, tt.calm)
		}
		if i.interrupted(); i.Longest != tt.longest*time.Second || !i.served.IsZero() || i.Calm != 0 {
			t.Errorf("%s: after a kill %+v", tt.name, i)
		}
	}
}
