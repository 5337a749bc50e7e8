package crowd

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// A plan holds the random decisions of a visitor that are made before it comes.
type plan struct {
	id     int
	seed   uint64
	arrive time.Duration // from the start of the run
	stay   time.Duration
	revoke bool
	giveUp time.Duration // 0: never
	agent  string
}

// plansOf draws the plans of all visitors, in order of arrival. Each visitor has its own random
// generator, so that a plan does not depend on the number of visitors.
func plansOf(cfg *Config) []plan {
	plans := make([]plan, cfg.N)
	for i := range plans {
		plans[i] = drawPlan(cfg, i+1)
	}
	slices.SortStableFunc(plans, func(a, b plan) int { return cmp.Compare(a.arrive, b.arrive) })
	return plans
}

// drawPlan draws every value, used or not, so that one setting does not change the draws of
// another.
func drawPlan(cfg *Config, id int) plan {
	rng := rand.New(rand.NewPCG(cfg.Seed, uint64(id)))
	p := plan{id: id, seed: cfg.Seed}
	p.arrive = arrival(rng, cfg.Shape, cfg.Arrive)
	p.stay = between(rng, cfg.SessionMin, cfg.SessionMax)
	p.revoke = rng.Float64() < cfg.RevokeShare && cfg.LeavePath != ""
	givesUp := rng.Float64() < cfg.GiveUpShare
	if after := between(rng, 0, cfg.GiveUpAfter); givesUp {
		p.giveUp = max(after, 1)
	}
	p.agent = cfg.UserAgents[rng.IntN(len(cfg.UserAgents))]
	return p
}

// rng returns the generator for draws during the visitor's life: think times and retries.
func (p *plan) rng() *rand.Rand { return rand.New(rand.NewPCG(p.seed, ^uint64(p.id))) }

func arrival(rng *rand.Rand, shape Shape, over time.Duration) time.Duration {
	early, at := rng.Float64() < 0.9, rng.Float64()
	if shape == ShapeBurst {
		if early {
			at *= 0.1
		} else {
			at = 0.1 + 0.9*at
		}
	}
	return time.Duration(at * float64(over))
}

func between(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(rng.Float64()*float64(hi-lo))
}
