package cluster

import (
	"fmt"
	"log/slog"
	"testing"
	"time"
)

func TestRendezvousMovesFewRooms(t *testing.T) {
	first := func(room string, nodes []string) (best string) {
		for _, n := range nodes {
			if best == "" || Score(room, n) > Score(room, best) {
				best = n
			}
		}
		return best
	}
	four := []string{"n1", "n2", "n3", "n4"}
	count, moved := map[string]int{}, 0
	for i := range 4000 {
		room := fmt.Sprint("room-", i)
		was := first(room, four)
		count[was]++
		if now := first(room, four[:3]); was != "n4" && now != was {
			moved++
		}
	}
	if moved > 0 {
		t.Errorf("%d rooms moved that did not have to", moved)
	}
	for n, k := range count {
		if k < 850 || k > 1150 {
			t.Errorf("%s hosts %d of 4000", n, k)
		}
	}
}

// Live processes are counted, those that may host rooms before workers.
func TestRankCountsBetterProcesses(t *testing.T) {
	clk := time.Hour
	boot := func() time.Duration { return clk }
	m := NewMembers(nil, Member{Name: "n1", CanHost: true}, boot, slog.New(slog.DiscardHandler))
	if _, ok := m.Rank("orders"); ok {
		t.Error("ranked before the others can be known")
	}
	clk += silentFor
	worse := 0
	for i := range 20 {
		name := fmt.Sprint("a", i)
		m.hear(&Member{Name: name, CanHost: true})
		if Score("orders", name) < Score("orders", "n1") {
			worse++
		}
	}
	for i := range 20 {
		m.hear(&Member{Name: fmt.Sprint("w", i)})
	}
	if n, ok := m.Rank("orders"); n != 20-worse || !ok || worse == 0 {
		t.Errorf("rank %d, %v, want %d", n, ok, 20-worse)
	}
	m.self.CanHost = false
	if n, _ := m.Rank("orders"); n < 20 {
		t.Errorf("rank %d of a worker, want at least 20", n)
	}
	m.self.CanHost = true
	clk += silentFor
	if n, _ := m.Rank("orders"); n != 0 {
		t.Errorf("rank %d when all others are silent", n)
	}
	m.self.Leaving = true
	if _, ok := m.Rank("orders"); ok {
		t.Error("a process that leaves is ranked")
	}
}
