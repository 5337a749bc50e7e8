package cluster

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/store"
)

// A live node that does not answer may be doing what the request wants to end. A dead node, or one
// that does not serve the name, is not.
func TestOthersAreAskedAsLongAsTheyLive(t *testing.T) {
	s, err := embedded.Open(t.Context(), embedded.Config{Dir: filepath.Join(t.TempDir(), "engine")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var clk atomic.Int64
	clk.Store(int64(time.Hour))
	m := NewMembers(store.NewBus(s.Conn()), Member{Name: "n1", CanHost: true},
		func() time.Duration { return time.Duration(clk.Load()) }, slog.New(slog.DiscardHandler))
	m.hear(&Member{Name: "dead", CanHost: true})
	clk.Add(int64(silentFor))
	m.hear(&Member{Name: "n2", CanHost: true})
	m.hear(&Member{Name: "n3", CanHost: true})
	serve := func(node string, answer func() []byte) {
		deaf, err := m.bus.Serve("end."+node, func(context.Context, []byte) []byte { return answer() })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(deaf)
	}
	ask := func(ctx context.Context) ([][]byte, error) {
		return m.RequestAll(ctx, func(node string) string { return "end." + node }, []byte("it"))
	}
	if got, err := ask(t.Context()); len(got) > 0 || err != nil {
		t.Errorf("nobody serves it: %q, %v", got, err)
	}
	for _, node := range []string{"n1", "n2", "dead"} { // n3 does not serve it
		serve(node, func() []byte { return []byte(node) })
	}
	if got, err := ask(t.Context()); len(got) != 1 || !slices.Equal(got[0], []byte("n2")) || err != nil {
		t.Errorf("%q, %v, want the answer of n2", got, err)
	}
	heard := make(chan struct{}, 2)
	serve("n3", func() []byte { heard <- struct{}{}; return nil })
	for _, dies := range []bool{false, true} {
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer stop()
			if <-heard; dies {
				clk.Add(int64(silentFor))
			}
		}()
		_, err := ask(ctx)
		if errors.Is(err, ErrNoResponse) == dies {
			t.Errorf("dies %v: %v", dies, err)
		}
	}
}
