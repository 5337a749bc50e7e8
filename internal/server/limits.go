package server

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
)

// callLimits are the rate limits of the process, and what the requests of each room meet.
type callLimits struct {
	rules *headgate.Limiter
	met   atomic.Pointer[metLimits]
}

// metLimits are the limits that the requests of rooms meet, one snapshot.
type metLimits struct {
	of    map[string][]headgate.RequestLimit // by room
	known map[string]headgate.RequestLimit   // by name
}

func newLimits(cfg *config.Config) (*callLimits, error) {
	rules, err := headgate.NewLimiter(headgate.LimiterConfig{Limits: limitConfigs(cfg)})
	if err != nil {
		return nil, err
	}
	l := &callLimits{rules: rules}
	l.met.Store(metBy(cfg))
	return l, nil
}

func limitConfigs(cfg *config.Config) (all []headgate.LimitConfig) {
	for i := range cfg.Limits {
		c := &cfg.Limits[i]
		all = append(all, headgate.LimitConfig{
			Name: c.Name, Rule: c.Rule, Unit: headgate.Unit(c.Unit), Overrides: c.Overrides,
			Shadow: c.Shadow, MaxKeys: c.MaxKeys,
		})
	}
	return all
}

// metBy says which limits the requests of each room meet.
func metBy(cfg *config.Config) *metLimits {
	known := map[string]headgate.RequestLimit{}
	for i := range cfg.Limits {
		c := &cfg.Limits[i]
		r := headgate.RequestLimit{
			Name: c.Name, Cost: c.Cost, CostHeader: c.CostHeader, Unit: headgate.Unit(c.Unit),
			Headers: headgate.HeaderStyle(c.Headers), Addr: clientAddr(cfg.TrustedProxies),
			OnError: func(_ *http.Request, err error) bool {
				return errors.Is(err, headgate.ErrNoLimit) // a reload has just removed it
			},
		}
		for _, k := range c.Key {
			r.Key = append(r.Key, headgate.KeyPart(k))
		}
		known[c.Name] = r
	}
	met := &metLimits{of: map[string][]headgate.RequestLimit{}, known: known}
	for i := range cfg.Rooms {
		for _, name := range cfg.Rooms[i].Limits {
			met.of[cfg.Rooms[i].Name] = append(met.of[cfg.Rooms[i].Name], known[name])
		}
	}
	return met
}

// style is how answers tell of a limit.
func (l *callLimits) style(limit string) headgate.HeaderStyle {
	return l.met.Load().known[limit].Headers
}

// check reports what a reload could not put in force.
func (l *callLimits) check(cfg *config.Config) error {
	_, err := headgate.NewLimiter(headgate.LimiterConfig{Limits: limitConfigs(cfg)})
	return err
}

// reload puts limits that were checked into force: what their keys have used stays used.
func (l *callLimits) reload(cfg *config.Config) {
	kept := map[string]bool{}
	for _, c := range limitConfigs(cfg) {
		kept[c.Name] = true
		if err := l.rules.Define(c); err != nil {
			panic(fmt.Sprintf("limit %q was checked: %v", c.Name, err))
		}
	}
	l.met.Store(metBy(cfg)) // before what is gone is removed: requests would ask for it
	for _, c := range l.rules.Limits() {
		if !kept[c.Name] && !envoys(c.Name) {
			l.rules.Remove(c.Name)
		}
	}
}

// before puts the limits of a room in front of its origin: who waits in the line uses up
// nothing.
func (l *callLimits) before(room string, next http.Handler) http.Handler {
	return &limited{limits: l, room: room, next: next}
}

// limited is a room's way to its origin past the limits that are in force.
type limited struct {
	limits *callLimits
	room   string
	next   http.Handler
	built  atomic.Pointer[builtLimits]
}

type builtLimits struct {
	met *metLimits
	http.Handler
}

// ServeHTTP implements http.Handler.
func (h *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	met, b := h.limits.met.Load(), h.built.Load()
	if b == nil || b.met != met {
		b = &builtLimits{met, headgate.LimitMiddleware(h.limits.rules, met.of[h.room], h.next)}
		h.built.Store(b)
	}
	b.ServeHTTP(w, r)
}

// limits tells what each limit has decided.
func (c *collector) limits(ch chan<- prometheus.Metric) {
	for _, cfg := range c.s.limits.rules.Limits() {
		t, err := c.s.limits.rules.Totals(cfg.Name)
		if err != nil { // removed since
			continue
		}
		send := func(kind prometheus.ValueType, name, help string, v float64) {
			d := prometheus.NewDesc(name, help, []string{"limit"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, cfg.Name)
		}
		send(prometheus.CounterValue, "headgate_limit_passed_total", "Calls that a limit let pass.",
			float64(t.Passed))
		send(prometheus.CounterValue, "headgate_limit_refused_total", "Calls that a limit refused.",
			float64(t.Refused))
		send(prometheus.CounterValue, "headgate_limit_shadowed_total",
			"Calls that a limit in shadow mode would have refused.", float64(t.Shadowed))
		send(prometheus.GaugeValue, "headgate_limit_keys", "Keys that a limit holds.", float64(t.Keys))
	}
}
