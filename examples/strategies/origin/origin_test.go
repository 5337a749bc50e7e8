package origin

import (
	"reflect"
	"testing"
)

func TestSameSeedSameResult(t *testing.T) {
	s := Scenarios()[0]
	a, b := Play(s, Fixed("a", 900), 7), Play(s, Fixed("a", 900), 7)
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs of one seed differ")
	}
	if c := Play(s, Fixed("a", 900), 8); a.Left == c.Left && reflect.DeepEqual(a.Inside, c.Inside) {
		t.Error("the seed changes nothing")
	}
}

// The knee is a cliff: nine tenths of it are served within the target, and a fifth more is served
// hardly at all, because throughput falls beyond it.
func TestKneeIsACliff(t *testing.T) {
	knee := int64(1000)
	if !testing.Short() {
		knee = Scenarios()[0].Knee(1) // ten runs
	}
	s := Scenarios()[0]
	below, above := Play(s, Fixed("", knee*9/10), 2), Play(s, Fixed("", knee*6/5), 2)
	if below.Over > 0.02 || below.Served < below.Left*98/100 {
		t.Errorf("at 90 %% of the knee of %d: %d of %d served, %.3f over", knee, below.Served, below.Left, below.Over)
	}
	if above.Over < 0.8 || above.Served > below.Served/2 {
		t.Errorf("at 120 %% of the knee of %d: %d served, %.3f over", knee, above.Served, above.Over)
	}
}
