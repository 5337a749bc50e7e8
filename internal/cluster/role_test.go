package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
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

// A term begins when this process should host, and ends when a better one is there.
func TestATermEndsWhenAnotherShouldHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boot := func() time.Duration { return time.Duration(time.Now().UnixNano()) }
		m := NewMembers(nil, Member{Name: "n1", CanHost: true}, boot, slog.New(slog.DiscardHandler))
		what := ""
		for i := 0; what == "" || Score(what, "n2") < Score(what, "n1"); i++ {
			what = fmt.Sprint("queue.", i)
		}
		began := time.Now()
		term, end := m.Term(t.Context(), what)
		defer end()
		if d := time.Since(began); d < silentFor || d > silentFor+beatEvery || term.Err() != nil {
			t.Fatalf("alone: hosts after %v, %v", d, term.Err())
		}
		beats := func(n int) {
			for range n {
				m.hear(&Member{Name: "n2", Life: 1, CanHost: true})
				time.Sleep(beatEvery)
			}
		}
		beats(int(settledFor/beatEvery) - 1)
		if term.Err() != nil {
			t.Error("a node that has just come takes over")
		}
		beats(3)
		if term.Err() == nil {
			t.Error("the term goes on beside a better node")
		}
		again := make(chan context.Context, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			term, end := m.Term(ctx, what)
			defer end()
			again <- term
			<-ctx.Done()
		}()
		beats(4)
		if len(again) > 0 {
			t.Error("a new term begins beside a better node")
		}
		time.Sleep(silentFor + beatEvery)
		if synctest.Wait(); len(again) != 1 || (<-again).Err() != nil {
			t.Error("no new term after the better node fell silent")
		}
		stop()
		synctest.Wait()
	})
}
