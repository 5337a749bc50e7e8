package overload

import (
	"testing"
	"time"

	"github.com/headgate/headgate/examples/strategies/origin"
)

// headgate serves more people than each of the models that find a limit, and than half of the knee, and
// is less often over the target than one and a half.
func TestBesideOthers(t *testing.T) {
	s := origin.Scenarios()[0]
	s.Length = 30 * time.Minute
	all := map[string]*origin.Result{}
	for _, st := range Strategies(1000) {
		all[st.Name] = origin.Play(s, st, 1)
	}
	ours := all["headgate"]
	for _, name := range []string{"AIMD", "Gradient2", "Envoy's gradient", "half of the knee"} {
		if r := all[name]; r.Served >= ours.Served || r.Served == 0 {
			t.Errorf("%s serves %d people, headgate %d", name, r.Served, ours.Served)
		}
	}
	if r := all["150 % of the knee"]; r.Over < 0.5 || ours.Over > 0.05 {
		t.Errorf("over the target: 150 %% of the knee %.3f, headgate %.3f", r.Over, ours.Over)
	}
}
