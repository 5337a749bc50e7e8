package server

import (
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/dashboard"
)

// adminAPI builds the API for operators and probes, which has an address of its own.
func (s *Server) adminAPI() *api.API {
	reg := prometheus.NewRegistry()
	allocated := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/allocs:bytes$`)}
	reg.MustRegister(&collector{s, s.clusterEnds()},
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(allocated)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gather := prometheus.GathererFunc(without(reg.Gather, clashing))
	return api.New(api.Config{
		Process: s, Log: s.log, Unready: s.unready,
		Tokens: api.NewTokens(s.dataFolder(), s.log),
		Audit:  api.NewAudit(s.dataFolder()),
		Keys: api.Keys{
			List:   s.node.ListKeys,
			Rotate: func() (api.RotateResult, error) { return s.node.RotateKeys(time.Now()) },
			Forget: s.node.ForgetKey,
		},
		Limits: api.Limits{
			Rules: s.limits.Rules, Keys: s.limits.Rules, Style: s.limits.style, Source: s.limits.Source,
			Found:  s.limits.Found,
			Usage:  s.usage,
			Change: s.limits.Change, Make: s.limits.Make, Remove: s.limits.Remove,
		},
		Queues:  s.jobs.all,
		Holders: api.Holders{Book: s.holders, Plans: s.limits.holderPlans},

		Webhooks: api.Webhooks{List: s.listWebhooks, Test: s.testWebhook},

		Rooms:   s,
		Zone:    s.zoneOf,
		History: history{s},
		Pages:   s.book,
		Preview: s.preview,
		Metrics: promhttp.HandlerFor(gather, promhttp.HandlerOpts{
			EnableOpenMetrics: true, MaxRequestsInFlight: mostScrapes,
		}),
		JWKS: s.node.Signing,

		ParentIn: s.traces.ParentIn,
	})
}

// watched returns the state of the rooms, with the counts of the requests to their origins.
func (s *Server) watched() []dashboard.Room {
	var all []dashboard.Room
	for _, g := range s.set.Load().gates {
		o := g.origin
		all = append(all, dashboard.Room{Room: g.room.Status(), Answers: o.answers(),
			Errors: o.none.Load() + o.c5xx.Load(), Took: time.Duration(o.nanos.Load())})
	}
	return all
}
