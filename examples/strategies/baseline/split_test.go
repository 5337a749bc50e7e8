package baseline

import (
	"math"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/sim"
)

// The state that cloudflare2023 uses throughout: 50 of 200 are active, 20 from San
// Jose and 30 from London; ten workers, three of them in San Jose, one in Delhi.
const (
	sanJose = iota
	london
	delhi
)

func document() (l sim.Limits, active int64, seen []int64) {
	return sim.Limits200(), 50, []int64{20, 30, 0}
}

func parts(t *testing.T) (data []int64, anywhere int64) {
	t.Helper()
	l, active, seen := document()
	data = make([]int64, len(seen))
	anywhere = divide(data, slots(l, active, 0), seen, l.Active)
	return data, anywhere
}

func is(t *testing.T, what string, got, want int64) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestCloudflare2023_A1(t *testing.T) {
	l, active, _ := document()
	is(t, "slots", slots(l, active, 0), 150)
	is(t, "slots when 120 came in this minute", slots(l, active, 120), 80)
	is(t, "slots above the limit", slots(l, 230, 0), 0)
}

func TestCloudflare2023_A2(t *testing.T) {
	data, _ := parts(t)
	is(t, "San Jose", data[sanJose], 15)
	is(t, "London", data[london], 22)
	is(t, "Delhi", data[delhi], 0)
}

func TestCloudflare2023_A3(t *testing.T) {
	data, _ := parts(t)
	is(t, "a worker of San Jose", each(data[sanJose], 3), 5)
}

func TestCloudflare2023_A4(t *testing.T) {
	data, anywhere := parts(t)
	is(t, "Anywhere", anywhere, 113)
	is(t, "all parts", data[sanJose]+data[london]+data[delhi]+anywhere, 150)
}

func TestCloudflare2023_A5(t *testing.T) {
	_, anywhere := parts(t)
	is(t, "a worker of Delhi", each(anywhere, 10), 11)
}

func TestCloudflare2023_A6(t *testing.T) {
	data, anywhere := parts(t)
	is(t, "a worker of San Jose with Anywhere", each(data[sanJose], 3)+each(anywhere, 10), 16)
}

// pass lets so many arrive at each worker, who may let in so many.
func pass(arrivals []int64, may int64) (passed, waiting int64) {
	for _, n := range arrivals {
		passed += min(n, may)
		waiting += n - min(n, may)
	}
	return passed, waiting
}

func TestCloudflare2023_A7(t *testing.T) {
	passed, waiting := pass([]int64{7, 1}, each(10, 2))
	is(t, "passed", passed, 6)
	is(t, "waiting while slots are free", waiting, 2)
	is(t, "free", 10-passed, 4)
}

func TestCloudflare2023_A8(t *testing.T) {
	l, active, _ := document()
	_, anywhere := parts(t)
	workers := adapted(10, float64(active)/float64(l.Active), 1)
	if workers != 2.5 {
		t.Errorf("adapted workers %v, want 2.5", workers)
	}
	is(t, "a worker of Delhi", each(anywhere, workers), 45)
}

// curveOfA9 gives the 8 slots which the document draws: about 0.204 by the formula,
// a hair more because parts are rounded down.
const curveOfA9 = 0.205

func TestCloudflare2023_A9(t *testing.T) {
	if c := math.Log(10.0/2/8) / math.Log(0.1); math.Abs(c-curveOfA9) > 0.001 {
		t.Errorf("the formula gives 8 at a curve of %v, the test has %v", c, curveOfA9)
	}
	may := each(10, adapted(2, 0.1, curveOfA9))
	is(t, "a worker", may, 8)
	passed, _ := pass([]int64{7, 1}, may)
	is(t, "passed", passed, 8)
	is(t, "a worker with curve 1", each(10, adapted(2, 0.1, 1)), 10)
}

func TestCloudflare2023_A10(t *testing.T) {
	passed, _ := pass([]int64{8, 7}, each(10, adapted(2, 0.1, curveOfA9)))
	is(t, "passed of 10 slots", passed, 15)
}

// ask asks a counter with so many slots so many times.
func ask(c *counter, slots int64, times int) (passed, waiting int64) {
	for range times {
		if _, ok := c.ask(slots); ok {
			passed++
		} else {
			waiting++
		}
	}
	return passed, waiting
}

func TestCloudflare2023_A11(t *testing.T) {
	passed, waiting := ask(&counter{}, 10, 7+1)
	is(t, "passed", passed, 8)
	is(t, "waiting", waiting, 0)
}

func TestCloudflare2023_A11b(t *testing.T) {
	c := counter{value: 9}
	value, ok := c.ask(10)
	if value != 9 || !ok {
		t.Errorf("the value %d passes: %v, want 9, true", value, ok)
	}
	value, ok = c.ask(10)
	if value != 10 || ok {
		t.Errorf("the value %d passes: %v, want 10, false", value, ok)
	}
	data, anywhere := parts(t)
	local, world := counter{}, counter{}
	for range 15 {
		local.ask(data[sanJose])
	}
	if value, ok := local.ask(data[sanJose]); value != 15 || ok {
		t.Errorf("San Jose answers %d, %v, want 15, false", value, ok)
	}
	if value, ok := world.ask(anywhere); value != 0 || !ok {
		t.Errorf("Anywhere answers %d, %v, want 0, true", value, ok)
	}
}

func TestCloudflare2023_A12(t *testing.T) {
	passed, waiting := ask(&counter{}, 10, 15)
	is(t, "passed", passed, 10)
	is(t, "waiting", waiting, 5)
}

func TestCloudflare2023_A13(t *testing.T) {
	data, anywhere := parts(t)
	local, world := counter{}, counter{}
	passed := int64(0)
	for range 129 {
		_, ok := local.ask(data[sanJose])
		if !ok {
			_, ok = world.ask(anywhere)
		}
		if ok {
			passed++
		}
	}
	is(t, "passed of 129 at one worker", passed, 128)
	is(t, "of San Jose", local.value, 15)
	is(t, "of Anywhere", world.value, 113)
}

// One data center knows of 26 active users while there are 100: what it adds is
// bounded by its part, so that all are still within the limit.
func TestCloudflare2023_A15(t *testing.T) {
	l, _, _ := document()
	seen := []int64{20, 6, 0} // the 26 that Delhi knows of
	data := make([]int64, len(seen))
	free := slots(l, 26, 0)
	anywhere := divide(data, free, seen, l.Active)
	is(t, "slots as Delhi knows them", free, 174)
	may := each(data[delhi], 1) + each(anywhere, 10)
	is(t, "what Delhi's one worker may add", may, 15)
	if all := 100 + may; all > l.Active {
		t.Errorf("%d active, limit %d", all, l.Active)
	}
	if all := 100 + free; all <= l.Active {
		t.Errorf("undivided, %d active would be within the limit: the example shows nothing", all)
	}
}

// B1: 750 slots over two data centers, and again after two minutes of 40:60.
func TestCloudflare2022_B1(t *testing.T) {
	got := make([]int64, 2)
	is(t, "the rest", divide(got, 750, []int64{5000, 5000}, 750), 0)
	if want := []int64{375, 375}; !slices.Equal(got, want) {
		t.Errorf("50:50 gives %v, want %v", got, want)
	}
	is(t, "the rest", divide(got, 750, []int64{4000, 6000}, 750), 0)
	if want := []int64{300, 450}; !slices.Equal(got, want) {
		t.Errorf("40:60 gives %v, want %v", got, want)
	}
}

// The count of a minute against its budget is the slots against those who came
// since the picture was taken.
func TestBudgetCountsNobodyTwice(t *testing.T) {
	l := sim.Limits200()
	is(t, "at the beginning of a minute", budget(l, 160, 0), 40)
	is(t, "when 30 have come in it", budget(l, 190, 30), 40)
	is(t, "when 10 of these have left", budget(l, 180, 30), 50)
	is(t, "when more are inside than may", budget(l, 260, 100), 40)
	is(t, "by new users a minute", budget(l, 20, 10), 180+10)
	is(t, "by new users a minute, nobody inside before", budget(sim.Limits{Active: 900, New: 200}, 0, 50), 200)
}

// slots returns how many may enter now: the smaller remainder of the two limits.
func slots(l sim.Limits, active, fresh int64) int64 {
	return max(0, min(l.Active-active, l.New-fresh))
}
