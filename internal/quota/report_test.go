package quota

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// take takes n units of the key "" at a Client.
func (h *heldWorld) take(desk int, n int64) (d limit.Decision) {
	h.t.Helper()
	if _, err := h.keys[desk].Take(h.ctx, h.def, "", n, &d); err != nil {
		h.t.Fatal(err)
	}
	return d
}

func (h *heldWorld) peek(desk int, n int64) Result {
	h.t.Helper()
	v, err := h.keys[desk].Peek(h.ctx, h.def, "", n)
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}

func tenAMinute() limit.Rule {
	return limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute}
}

// A return includes what other processes have used a moment ago and not yet reported.
func TestGivingBackKnowsWhatWasJustUsed(t *testing.T) {
	inHeldWorld(t, tenAMinute(), 2*time.Millisecond, func(h *heldWorld) {
		for desk := range 3 {
			h.take(desk, 3)
		}
		if d := h.take(2, -4); d.Remaining != 5 {
			t.Errorf("4 of 9 given back at once: %d of 10 left, want 5", d.Remaining)
		}
		if d := h.take(0, -100); d.Remaining != 10 {
			t.Errorf("all given back: %d of 10 left", d.Remaining)
		}
		pause(h.ctx, time.Second)
		if d := h.peek(1, 0); d.Remaining != 10 {
			t.Errorf("a second later %d of 10 are left", d.Remaining)
		}
	})
}

// A reset clears all usage of a key, including the most recent usage. A Client that has denied the
// key no longer denies it for that reason.
func TestResetForgetsWhatWasJustUsed(t *testing.T) {
	inHeldWorld(t, tenAMinute(), 2*time.Millisecond, func(h *heldWorld) {
		reset := func() {
			t.Helper()
			if err := h.keys[1].Reset(h.ctx, h.def, ""); err != nil {
				t.Fatal(err)
			}
		}
		for desk := range 3 {
			h.take(desk, 3)
		}
		reset()
		pause(h.ctx, time.Second)
		if d := h.peek(0, 0); d.Remaining != 10 {
			t.Errorf("a second later %d of 10 are left", d.Remaining)
		}
		h.take(0, 10)
		if d := h.take(1, 1); d.Allowed {
			t.Fatalf("%+v", d)
		}
		reset()
		if d := h.take(1, 1); !d.Allowed {
			t.Errorf("refused after a reset: %+v", d)
		}
	})
}

// A peek at a key that others have just used up returns the time until it is free, as a call does.
func TestPeekKnowsWhatWasJustUsed(t *testing.T) {
	inHeldWorld(t, tenAMinute(), 2*time.Millisecond, func(h *heldWorld) {
		h.take(0, 10)
		if v := h.peek(1, 1); v.Allowed || v.Retry < 59*time.Second {
			t.Errorf("%+v, want a refusal for a minute", v)
		}
	})
}

// A remembered denial ends when its rule changes.
func TestAChangedLimitRefusesByItselfAlone(t *testing.T) {
	inHeldWorld(t, tenAMinute(), 2*time.Millisecond, func(h *heldWorld) {
		h.take(0, 10)
		if d := h.take(1, 1); d.Allowed {
			t.Fatalf("%+v", d)
		}
		r := tenAMinute()
		r.Amount = 50
		compiled, err := limittable.Compile(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		def := *h.def
		def.Rules = compiled
		h.def, h.limits[0] = &def, &def
		if d := h.take(1, 1); !d.Allowed || d.Amount != 50 {
			t.Errorf("refused by the limit of before: %+v", d)
		}
	})
}
