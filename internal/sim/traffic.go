package sim

import (
	"iter"
	"math/rand/v2"
	"time"
)

// A Traffic defines how many visitors come when and where. It is a Poisson process whose rate is
// constant within each second.
type Traffic struct {
	Rate        func(t time.Duration) float64       // arrivals per minute, all sites
	Datacenters func(t time.Duration) []float64     // weights of the sites; nil: by number of workers
	Worker      func(t time.Duration, site int) Hot // nil: all workers alike
	// mean of an exponential distribution; 0: one request each
	Dwell time.Duration
}

// A Hot is a worker that receives a fixed share of its site's traffic. The others share the rest.
type Hot struct {
	Worker int
	Share  float64
}

// Over returns the arrivals at the sites until a given time.
func (t Traffic) Over(sites []Datacenter, length time.Duration) func(uint64) iter.Seq[Arrival] {
	return func(seed uint64) iter.Seq[Arrival] {
		return func(yield func(Arrival) bool) { t.play(sites, length, seed, yield) }
	}
}

// warmUp is how long nobody comes, because processes start first. Chosen.
const warmUp = 5 * time.Second

// play draws the arrivals of a Poisson process whose rate may change each second.
func (t Traffic) play(sites []Datacenter, length time.Duration, seed uint64, yield func(Arrival) bool) {
	r := rand.New(rand.NewPCG(seed, 0))
	equal := make([]float64, len(sites))
	for i := range sites {
		equal[i] = float64(sites[i].Workers)
	}
	for at := warmUp; at < length; {
		second := at.Truncate(time.Second)
		rate := t.Rate(second) / float64(time.Minute) // per nanosecond
		end := second + time.Second
		if rate <= 0 {
			at = end
			continue
		}
		weights := equal
		if t.Datacenters != nil {
			weights = t.Datacenters(second)
		}
		sum := 0.0
		for _, x := range weights {
			sum += x
		}
		for {
			at += time.Duration(r.ExpFloat64() / rate)
			if at >= end { // a Poisson process is memoryless: it may restart any time
				at = end
				break
			}
			a := Arrival{At: at, Datacenter: int32(pick(r, weights, sum))}
			a.Worker = t.worker(r, second, a.Datacenter, sites)
			if t.Dwell > 0 {
				a.Dwell = time.Duration(r.ExpFloat64() * float64(t.Dwell))
			}
			if !yield(a) {
				return
			}
		}
	}
}

func pick(r *rand.Rand, weights []float64, sum float64) int {
	x := r.Float64() * sum
	for i, w := range weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func (t Traffic) worker(r *rand.Rand, at time.Duration, site int32, sites []Datacenter) int32 {
	n := int32(sites[site].Workers)
	if t.Worker != nil {
		if hot := t.Worker(at, int(site)); hot.Share > 0 && r.Float64() < hot.Share {
			return int32(hot.Worker) % n
		}
	}
	return r.Int32N(n)
}
