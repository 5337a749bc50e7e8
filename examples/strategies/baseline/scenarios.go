package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

const chosen = "chosen"

// dwell is the mean time that visitors spend on the site, as in the general scenarios. With
// Limits200 and its sessions of five minutes, 28 newcomers a minute fill the room.
const dwell = 2 * time.Minute

// Scenarios returns scenarios that show each baseline as its authors report it, and where it is as
// good as any: a best case for each worst case, in the order of [Strategies].
func Scenarios() []sim.Scenario {
	return []sim.Scenario{
		earlyQueue(), loneWorker(), spikeAfterLowUse(), gentleRise(), shiftedSites(),
		oneHotWorker(), likeWorkers(), scaleOut(), quietScaleOut(), everyoneAtOnce(), comeAndGo(),
		logJam(), lightLog(), roamingSpot(), restingSpot(),
	}
}

// play sets the usual values: the document's limits and sites, and an hour.
func play(s sim.Scenario, t sim.Traffic) sim.Scenario {
	if s.Limits.Active == 0 {
		s.Limits = sim.Limits200()
	}
	if s.Datacenters == nil {
		s.Datacenters = sim.ThreeDatacenters()
	}
	if s.Length == 0 {
		s.Length = time.Hour
	}
	s.StateLag = 3 * time.Second // "within seconds", cloudflare2023
	t.Dwell = dwell
	s.Arrivals = t.Over(s.Datacenters, s.Length)
	return s
}

func constant(perMinute float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return perMinute }
}

// rise is a rate that changes from one value to another within the first part.
func rise(from, to float64, within time.Duration) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		return from + (to-from)*min(1, float64(t)/float64(within))
	}
}

// spike is a low rate, with a high one for some time from ten minutes on.
func spike(low, high float64, length time.Duration) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		if t >= 10*time.Minute && t < 10*time.Minute+length {
			return high
		}
		return low
	}
}

// workersOf returns one data center with this number of workers.
func workersOf(n int) []sim.Datacenter {
	s := sim.ThreeDatacenters()[0]
	s.Workers = n
	return []sim.Datacenter{s}
}

func earlyQueue() sim.Scenario {
	return play(sim.Scenario{
		Name: "early-queue", About: "use rises to eight tenths and stays; nobody would have to wait",
		Source: cloudflare2023 + ": even split queues 20 to 30 % below the limit; rates are chosen",
	}, sim.Traffic{Rate: rise(4, 23, 20*time.Minute)})
}

func loneWorker() sim.Scenario {
	return play(sim.Scenario{
		Name: "lone-worker", About: "use rises over the limit at one worker alone", Source: chosen,
		Datacenters: workersOf(1),
	}, sim.Traffic{Rate: rise(4, 40, 50*time.Minute)})
}

func spikeAfterLowUse() sim.Scenario {
	return play(sim.Scenario{
		Name: "spike-after-low-use", About: "a tenth in use, then 600 everywhere within three seconds",
		Source: cloudflare2023 + ": the risk of over-provisioning; rates are chosen",
		Length: 20 * time.Minute,
	}, sim.Traffic{Rate: spike(3, 12_000, 3*time.Second)})
}

func gentleRise() sim.Scenario {
	return play(sim.Scenario{
		Name: "gentle-rise", About: "use rises slowly over the limit in all data centers",
		Source: cloudflare2023 + ": counters queue near the limit; rates are chosen",
	}, sim.Traffic{Rate: rise(4, 40, 50*time.Minute)})
}

func shiftedSites() sim.Scenario {
	const noon = 30 * time.Minute
	return play(sim.Scenario{
		Name: "shifted-sites", About: "at seven tenths, a wave comes to a data center that had no traffic",
		Source: "what a data center's counter cannot give to another; chosen",
	}, sim.Traffic{
		Rate: func(t time.Duration) float64 {
			if t >= noon && t < noon+30*time.Second {
				return 100
			}
			return 20
		},
		Datacenters: func(t time.Duration) []float64 {
			if t < noon {
				return []float64{1, 0, 0}
			}
			return []float64{0, 1, 0}
		},
	})
}

func oneHotWorker() sim.Scenario {
	return play(sim.Scenario{
		Name: "one-hot-worker", About: "one of ten workers gets all that three would get", Source: chosen,
		Datacenters: workersOf(10),
	}, sim.Traffic{
		Rate:   constant(22),
		Worker: func(time.Duration, int) sim.Hot { return sim.Hot{Worker: 2, Share: 0.3} },
	})
}

func likeWorkers() sim.Scenario {
	return play(sim.Scenario{
		Name: "like-workers", About: "two workers, two thirds of what the room takes", Source: chosen,
		Limits:      sim.Limits{Active: 2000, Session: 5 * time.Minute, New: 2000, Window: time.Minute},
		Datacenters: workersOf(2),
	}, sim.Traffic{Rate: constant(190)})
}

func scaleOut() sim.Scenario {
	return play(sim.Scenario{
		Name: "scale-out", About: "more than the room takes; half way through, workers may be doubled",
		Source: criteo + ": after each scaling a client can call more; rates are chosen",
	}, sim.Traffic{Rate: constant(40)})
}

func quietScaleOut() sim.Scenario {
	return play(sim.Scenario{
		Name: "quiet-scale-out", About: "a fifth of what the room takes; scaling must not matter",
		Source: chosen,
		Limits: sim.Limits{Active: 2000, Session: 5 * time.Minute, New: 2000, Window: time.Minute},
	}, sim.Traffic{Rate: constant(57)})
}

func everyoneAtOnce() sim.Scenario {
	return play(sim.Scenario{
		Name: "everyone-at-once", About: "nobody, then 3,000 everywhere within a second, twice",
		Source: "bursts after idle in a toy run of asynchronous counts; rates are chosen",
		Length: 40 * time.Minute,
	}, sim.Traffic{Rate: func(t time.Duration) float64 {
		return spike(0, 180_000, time.Second)(t) + spike(0, 180_000, time.Second)(t-20*time.Minute)
	}})
}

func comeAndGo() sim.Scenario {
	return play(sim.Scenario{
		Name: "come-and-go", About: "nine tenths in use, one now and then", Source: chosen,
	}, sim.Traffic{Rate: constant(25)})
}

func logJam() sim.Scenario {
	return play(sim.Scenario{
		Name: "log-jam", About: "1,000 a second for a minute before 2,000 slots",
		Source: criteo + ": the log lags most under load; rates are chosen",
		Limits: sim.Limits{Active: 2000, Session: 5 * time.Minute, New: 2000, Window: time.Minute},
		Length: 20 * time.Minute,
	}, sim.Traffic{Rate: spike(100, 60_000, time.Minute)})
}

func lightLog() sim.Scenario {
	return play(sim.Scenario{
		Name: "light-log", About: "a little more than the room takes, no hurry", Source: chosen,
		Limits: sim.Limits{Active: 2000, Session: 5 * time.Minute, New: 2000, Window: time.Minute},
	}, sim.Traffic{Rate: rise(100, 320, 50*time.Minute)})
}

func roamingSpot() sim.Scenario {
	return play(sim.Scenario{
		Name: "roaming-spot", About: "all visitors come to one worker, every twenty seconds another",
		Source:      "moving hot spots in a toy run of rate leases; times are chosen",
		Limits:      sim.Limits{Active: 2000, Session: 5 * time.Minute, New: 200, Window: time.Minute},
		Datacenters: workersOf(10),
	}, sim.Traffic{
		Rate: constant(140),
		Worker: func(t time.Duration, _ int) sim.Hot {
			return sim.Hot{Worker: int(t/(20*time.Second)) * 7 % 10, Share: 1}
		},
	})
}

func restingSpot() sim.Scenario {
	return play(sim.Scenario{
		Name: "resting-spot", About: "one of ten workers gets half, always the same", Source: chosen,
		Limits:      sim.Limits{Active: 2000, Session: 5 * time.Minute, New: 2000, Window: time.Minute},
		Datacenters: workersOf(10),
	}, sim.Traffic{
		Rate:   constant(190),
		Worker: func(time.Duration, int) sim.Hot { return sim.Hot{Worker: 2, Share: 0.5} },
	})
}
