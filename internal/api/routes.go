package api

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/queue"
)

// New builds the API. It starts nothing and opens no file.
func New(cfg Config) *API {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Queues == nil {
		cfg.Queues = func() []*queue.Queue { return nil }
	}
	a := &API{cfg: cfg, mux: http.NewServeMux(), bulks: make(chan struct{}, maxBulks)}
	paths := map[string][]route{}
	for _, e := range a.allRoutes() {
		paths[e.path] = append(paths[e.path], e)
	}
	for path, routes := range paths {
		a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			a.dispatch(w, r, routes)
		})
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.dispatch(w, r, nil) })
	return a
}

// allRoutes returns all routes; openapi.json describes each.
func (a *API) allRoutes() []route {
	return slices.Concat(a.routes(), a.limitRoutes(), a.queueRoutes(), a.holderRoutes(), a.webhookRoutes(),
		a.passRoutes(), a.managedRoutes(), a.historyRoutes(), a.analyticsRoutes())
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

func (a *API) routes() []route {
	const one = "/v1/rooms/{name}"
	return []route{
		{"GET", "/livez", "", false, a.livez},
		{"GET", "/readyz", "", false, a.readyz},
		{"GET", "/metrics", scopeRead, false, a.metrics},
		{"GET", "/v1/status", scopeRead, false, a.about},
		{"GET", "/v1/cluster", scopeRead, false, a.cluster},
		{"POST", "/v1/cluster/anywhere", scopeWrite, false, a.moveAnywhere},
		{"POST", "/v1/cluster/off", scopeWrite, false, a.off},
		{"POST", "/v1/cluster/revoke", scopeWrite, false, a.revoke},
		{"GET", "/v1/rooms", scopeRead, true, a.rooms},
		{"GET", one, scopeRead, false, a.room},
		{"PATCH", one, scopeWrite, false, a.change},
		{"POST", one + "/codes", scopeWrite, false, a.makeCodes},
		{"GET", one + "/codes/revoked", scopeRead, false, a.revokedCodes},
		{"POST", one + "/codes/revoked", scopeWrite, false, a.reviseCodes},
		{"GET", one + "/preview", scopeRead, false, a.preview},
		{"GET", one + "/tickets/{id}", scopeRead, false, a.ticket},
		{"POST", one + "/tickets/{id}/release", scopeRelease, false, a.releaseTicket},
		{"GET", "/v1/tickets/{id}", scopeRead, true, a.tickets},
		{"POST", "/v1/reload", scopeWrite, false, a.reload},
		{"GET", "/v1/keys", scopeRead, false, a.keys},
		{"POST", "/v1/keys/rotate", scopeWrite, false, a.rotate},
		{"DELETE", "/v1/keys/{id}", scopeWrite, false, a.forget},
	}
}

func (a *API) analyticsRoutes() []route {
	return []route{
		{"GET", "/v1/analytics", scopeRead, true, a.analytics},
		{"GET", "/v1/analytics/advice", scopeRead, true, a.advice},
	}
}

// historyRoutes returns the routes for the history of changes.
func (a *API) historyRoutes() []route {
	const one = "/v1/history/{version}"
	return []route{
		{"GET", "/preview/{id}", "", false, a.showPreview},
		{"GET", "/v1/openapi.json", "", false, a.openAPI},
		{"GET", "/v1/zones", scopeRead, true, a.booked(a.zones)},
		{"GET", "/v1/history", scopeRead, true, a.history},
		{"GET", one, scopeRead, true, a.booked(a.oneChange)},
		{"POST", one + "/undo", scopeWrite, true, a.undo},
		{"GET", "/v1/audit", scopeRead, false, a.audit},
	}
}

func (a *API) limitRoutes() []route {
	const one = "/v1/limits/{limit}"
	return []route{
		{"POST", "/v1/limits/check", scopeRead, false, a.checkLimits},
		{"POST", "/v1/limits/reserve", scopeRead, false, a.reserveLimit},
		{"POST", "/v1/limits/settle", scopeRead, false, a.settleLimit},
		{"POST", "/v1/limits/renew", scopeRead, false, a.renewLimit},
		{"GET", "/v1/limits", scopeRead, false, a.limits},
		{"GET", one, scopeRead, false, a.limit},
		{"PUT", one, scopeWrite, false, a.putLimit},
		{"PATCH", one, scopeWrite, false, a.changeLimit},
		{"DELETE", one, scopeWrite, false, a.removeLimit},
		{"GET", "/v1/usage", scopeRead, false, a.usage},
		{"GET", one + "/keys", scopeRead, false, a.limitKeys},
		{"GET", one + "/keys/{key...}", scopeRead, false, a.limitKey},
		{"DELETE", one + "/keys/{key...}", scopeWrite, false, a.resetLimitKey},
	}
}

// managedRoutes returns the routes of Cloudflare's API.
func (a *API) managedRoutes() []route {
	const (
		v4    = "/client/v4"
		zone  = v4 + "/zones/{zone}"
		rooms = zone + "/waiting_rooms"
		one   = rooms + "/{room}"
		event = one + "/events/{event}"
		rule  = one + "/rules/{rule}"
	)
	r, w := scopeRead, scopeWrite
	return []route{
		{"GET", v4 + "/zones", r, true, a.booked(a.listZones)},
		{"GET", zone, r, true, a.inZone(r, a.oneZone)},
		{"GET", v4 + "/accounts/{account}/waiting_rooms", r, true, a.booked(a.listAll)},
		{"GET", rooms, r, true, a.booked(a.listRooms)},
		{"POST", rooms, w, true, a.write(manage.Rooms, manage.Create)},
		{"POST", rooms + "/preview", w, true, a.inZone(w, a.makePreview)},
		{"GET", rooms + "/settings", r, true, a.see(manage.ZoneSet)},
		{"PUT", rooms + "/settings", w, true, a.write(manage.ZoneSet, manage.Replace)},
		{"PATCH", rooms + "/settings", w, true, a.write(manage.ZoneSet, manage.Edit)},
		{"GET", one, r, true, a.see(manage.Rooms)},
		{"PUT", one, w, true, a.write(manage.Rooms, manage.Replace)},
		{"PATCH", one, w, true, a.write(manage.Rooms, manage.Edit)},
		{"DELETE", one, w, true, a.write(manage.Rooms, manage.Delete)},
		{"GET", one + "/status", r, true, a.inZone(r, a.roomStatus)},
		{"GET", one + "/events", r, true, a.see(manage.Events)},
		{"POST", one + "/events", w, true, a.write(manage.Events, manage.Create)},
		{"GET", event, r, true, a.see(manage.Events)},
		{"PUT", event, w, true, a.write(manage.Events, manage.Replace)},
		{"PATCH", event, w, true, a.write(manage.Events, manage.Edit)},
		{"DELETE", event, w, true, a.write(manage.Events, manage.Delete)},
		{"GET", event + "/details", r, true, a.see(manage.QueryDetails)},
		{"GET", one + "/rules", r, true, a.see(manage.RuleList)},
		{"POST", one + "/rules", w, true, a.write(manage.RuleList, manage.Create)},
		{"PUT", one + "/rules", w, true, a.write(manage.RuleList, manage.Replace)},
		{"PATCH", rule, w, true, a.write(manage.OneRule, manage.Edit)},
		{"DELETE", rule, w, true, a.write(manage.OneRule, manage.Delete)},
	}
}

func (a *API) queueRoutes() []route {
	const (
		one = "/v1/queues/{name}"
		job = one + "/jobs/{job...}"
	)
	which := slices.Clip([]string{"id", "tenant", "status", "since", "before"}) // dead jobs
	return []route{
		{"GET", "/v1/queues", scopeRead, true, a.queues},
		{"GET", one, scopeRead, false, a.ofQueue(a.queue)},
		{"PATCH", one, scopeWrite, false, named(a.ofQueue(a.changeQueue))},
		{"POST", one + "/jobs", scopePut, false, named(a.putJobs, "broken", "line")},
		{"GET", one + "/jobs", scopeWrite, false, named(a.ofQueue(a.saveJobs), "dead")}, // jobs may hold secrets
		{"DELETE", one + "/jobs", scopeWrite, false, named(a.ofQueue(a.purgeQueue))},
		{"GET", job, scopeRead, false, named(a.ofQueue(a.job), "by", "wait")},
		{"DELETE", job, scopeWrite, false, named(a.ofQueue(a.cancelJob), "by")},
		{"PATCH", job, scopeWrite, false, named(a.ofQueue(a.changeJob), "by")},
		{"POST", one + "/claim", scopeClaim, false, named(a.ofQueue(a.claimJobs))},
		{"POST", one + "/ack", scopeClaim, false, named(a.ofQueue(a.ackJobs))},
		{"POST", one + "/nack", scopeClaim, false, named(a.ofQueue(a.nackJobs))},
		{"POST", one + "/extend", scopeClaim, false, named(a.ofQueue(a.extendJobs))},
		{"POST", one + "/pause", scopeWrite, false,
			named(a.ofQueue(a.steerQueue((*queue.Queue).Pause, (*queue.Queue).PauseTenant)), "tenant")},
		{"POST", one + "/resume", scopeWrite, false,
			named(a.ofQueue(a.steerQueue((*queue.Queue).Resume, (*queue.Queue).ResumeTenant)), "tenant")},
		{"GET", one + "/tenants/{tenant...}", scopeRead, false, named(a.ofQueue(a.tenantOf), "count")},
		{"GET", one + "/schedules", scopeRead, false, named(a.ofQueue(a.schedules))},
		{"GET", one + "/dead", scopeRead, false, named(a.ofQueue(a.deadJobs), append(which, "count", "after")...)},
		{"DELETE", one + "/dead", scopeWrite, false, named(a.ofQueue(a.purgeDead), append(which, "most")...)},
		{"POST", one + "/redrive", scopeWrite, false, named(a.ofQueue(a.redrive), append(which, "most")...)},
	}
}

func (a *API) passRoutes() []route {
	const one = "/v1/rooms/{name}/passes/"
	end := func(abandoned bool) func(*call) (any, error) {
		return func(c *call) (any, error) { return a.endVisit(c, abandoned) }
	}
	return []route{
		{"POST", one + "complete", scopePass, false, end(false)},
		{"POST", one + "abandon", scopePass, false, end(true)},
		{"POST", originPath, scopePass, false, a.reportOrigin},
		{"GET", "/.headgate/jwks.json", "", false, a.jwks},
	}
}

func (a *API) webhookRoutes() []route {
	return []route{
		{"GET", "/v1/webhooks", scopeRead, false, a.webhooks},
		{"POST", "/v1/webhooks/{webhook}/test", scopeWrite, false, a.testWebhook},
	}
}
