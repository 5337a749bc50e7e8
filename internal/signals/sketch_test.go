package signals

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
)

// A client lowers nothing, neither where many nodes count its requests, nor on a quiet site, nor on both.
// The same answers to many clients lower the limit at once.
func TestOneClientLowersNothing(t *testing.T) {
	for _, nodes := range []int{1, 3, 10} {
		for _, visitors := range []int{12, 50} {
			for _, o := range []Outcome{Answered, Refused} { // answered, but slowly
				t.Run(fmt.Sprintf("%d nodes, %d visitors, %d", nodes, visitors, o), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { oneClient(t, nodes, visitors, o) })
				})
			}
		}
	}
}

func oneClient(t *testing.T, nodes, visitors int, o Outcome) {
	var meters []*Meter
	for range nodes {
		meters = append(meters, NewMeter())
	}
	var all Collector
	c := adaptive.New(adaptive.Settings{Min: 10, Max: 5000, Start: int64(visitors), MaxPerMinute: 3000,
		TargetP95: 400 * time.Millisecond}, adaptive.State{})
	request := func(node int, network uint64, took time.Duration, o Outcome) {
		var f Flight
		f.Begin(meters[node], nil, network)
		f.began -= took.Microseconds() // as if it had begun then
		f.End(request("GET", "/page"), o)
	}
	ask := func(k int, everybody bool) adaptive.Decision {
		for v := range visitors {
			took, how := time.Duration(80+10*((v+k)%5))*time.Millisecond, Answered
			if everybody && (v+k)%2 == 0 {
				took, how = 2*time.Second, o
			}
			request((v+k)%nodes, uint64(1000+v), took, how)
		}
		if k > 24 && !everybody {
			for i := range 20 * nodes {
				request(i%nodes, 7, 2*time.Second, o)
			}
		}
		time.Sleep(Every)
		for i, m := range meters {
			x := m.Read()
			x.From = fmt.Sprint(i)
			y, err := ReadReport(x.Append(nil)) // as it arrives at the host
			if err != nil {
				t.Fatal(err)
			}
			all.Put(y)
		}
		x, _ := all.Take()
		return c.Step(adaptive.Sample{At: time.Now(), Length: x.Length, Inside: float64(visitors), Waiting: 9,
			Limit: int64(visitors), Routes: x.Routes, Excess: x.Excess(), Load: math.NaN()})
	}
	before := int64(0)
	for k := range 60 {
		d := ask(k, false)
		if k >= 24 && d.Active < before {
			t.Fatalf("after %d intervals from %d to %d: %s", k, before, d.Active, d.Reason)
		}
		before = d.Active
	}
	for k := range 12 {
		if ask(k, true).Active < before || visitors < 20 { // too few to judge by
			return
		}
	}
	t.Error("when everybody gets such answers, the limit stays")
}
