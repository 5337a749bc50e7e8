package cluster

import (
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// TestAlone: the same visitors, balancer and judge before one node without a
// cluster. What fails here is a fault of the harness, or of a single node.
func TestAlone(t *testing.T) { play(t, testAlone) }

func testAlone(t *testing.T) {
	st := newStage(t, plan{alone: true, total: 60, perMinute: 600, session: 3 * time.Second,
		visitors: 800, arrive: 25 * time.Second, length: 50 * time.Second,
		stay: stays, think: thinks})
	st.finish(limits{letIn: 400, waited: 300, idle: idleMost, onTime: 80, at: map[string]int{"alone": 100},
		used: 20})
}

// TestJudgeGoesRed: the node has twice the limits that the judge was told, and the
// judge must see it, by both limits.
func TestJudgeGoesRed(t *testing.T) { play(t, testJudgeGoesRed) }

func testJudgeGoesRed(t *testing.T) {
	st := newStage(t, plan{alone: true, factor: 2, total: 40, perMinute: 200,
		session: 3 * time.Second, visitors: 500, arrive: 15 * time.Second, length: 30 * time.Second,
		stay: stays, think: thinks, everyoneAsks: true})
	figures, _ := st.ended().verdict(limits{})
	t.Logf("\n%s", judge.Table(figures))
	for _, name := range []string{"inside at once, first byte in to last byte out",
		"the same, and the session after it", "new visitors in any 60 s, by the origin"} {
		if f := figure(t, figures, name); f.OK() {
			t.Errorf("%s: %v is no fault, though the node was told twice the limit", name, f.Reach)
		}
	}
}

// TestAloneLostAnswers and TestAloneLimits are the scenarios of a cluster that one
// node can play as well.
func TestAloneLostAnswers(t *testing.T) { play(t, testAloneLostAnswers) }

func testAloneLostAnswers(t *testing.T) {
	p := usual()
	p.alone = true
	lostAnswers(t, p)
}

// TestAloneLimits: see TestAloneLostAnswers.
func TestAloneLimits(t *testing.T) { play(t, testAloneLimits) }

func testAloneLimits(t *testing.T) {
	p := usual()
	p.alone, p.visitors = true, 1200
	changeLimits(t, p, []string{"alone"})
}
