package figure

import (
	"math"
	"strings"
	"testing"
)

func TestCloudflare_A4_AnywhereHas113(t *testing.T) {
	if n := anywhere(); n != 113 {
		t.Errorf("%d Anywhere slots, the document says 113", n)
	}
}

func TestCloudflare_A5_EvenSplitIs11(t *testing.T) {
	if n := int(adaptive(113, 10, 1, 1)); n != 11 {
		t.Errorf("%d slots at full use, an even split gives 11", n)
	}
}

func TestCloudflare_A8_AdaptiveIs45(t *testing.T) {
	if n := int(adaptive(113, 10, 50.0/200, 1)); n != 45 {
		t.Errorf("%d slots, the document says 45", n)
	}
}

// The document draws 8 slots for each of two workers at 10 %, which its formula
// yields with a curveFactor of about 0.204; with 1 each would get all ten.
func TestCloudflare_A9_DrawnNotComputed(t *testing.T) {
	if n := adaptive(10, 2, 0.10, 0.204); math.Abs(n-8) > 0.01 {
		t.Errorf("%.2f slots, not 8", n)
	}
	if n := adaptive(10, 2, 0.10, 1); n != 10 {
		t.Errorf("%.2f slots, not all 10", n)
	}
}

// Figure 1: all curves begin with all slots, fall, and end at the even split.
func TestCloudflare_SlotsFallWithUse(t *testing.T) {
	f := slotsPerWorker()
	even := f.Series[len(f.Series)-1].Y[0]
	if even != 11.3 {
		t.Errorf("the even split is %v, not 11.3", even)
	}
	for i, s := range f.Series[:len(f.Series)-1] {
		if s.Y[0] != 113 || s.Y[100] != even {
			t.Errorf("%s runs from %v to %v", s.Name, s.Y[0], s.Y[100])
		}
		for k := 1; k < len(s.Y); k++ {
			if s.Y[k] > s.Y[k-1] {
				t.Errorf("%s rises at %v", s.Name, s.X[k])
			}
			if i > 0 && s.Y[k] < f.Series[i-1].Y[k] {
				t.Errorf("%s is under %s at %v", s.Name, f.Series[i-1].Name, s.X[k])
			}
		}
		document := strings.HasSuffix(s.Name, "(document)")
		if c := factors()[i]; document != (c == 1 || c == 2) {
			t.Errorf("%s: the document has the factors 1 and 2", s.Name)
		}
	}
	if got := f.Table.Rows[1][3]; got != "45 each, 450 in all" {
		t.Errorf("at 25 %% with the factor 1: %s", got)
	}
}

func TestCloudflare_CurvesMeetAt0And1(t *testing.T) {
	for i, half := range []float64{0.5, 0.25} {
		s := curves().Series[i]
		if s.Y[0] != 0 || s.Y[50] != half || s.Y[100] != 1 {
			t.Errorf("%s: %v, %v, %v at 0, 0.5 and 1", s.Name, s.Y[0], s.Y[50], s.Y[100])
		}
	}
}

// Under 10 ms inside, 60 to 70 ms for Anywhere, and more at the 95th percentile.
func TestCloudflare_CounterLatencies(t *testing.T) {
	sum := 0.0
	for _, d := range distances() {
		sum += d.share
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("the shares make %v", sum)
	}
	for seed := range uint64(5) {
		f := latencies(seed)
		near, far := f.Series[0], f.Series[1]
		if p99 := near.Y[99-50]; p99 >= 10 {
			t.Errorf("inside p99 %.1f ms", p99)
		}
		if p50, p95 := far.Y[0], far.Y[95-50]; p50 < 60 || p50 > 70 || p95 < 1.5*p50 {
			t.Errorf("Anywhere p50 %.1f ms, p95 %.1f ms", p50, p95)
		}
	}
}
