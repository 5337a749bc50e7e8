package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/queue"
)

// errNoQueue reports that there is no queue of that name.
var errNoQueue = errors.New("there is no such queue")

// named returns f for queries that have only these parameters. A misspelled parameter, or one of
// another method, would otherwise affect all jobs instead of some: redrive?ids=7-0, DELETE
// jobs?dead=true.
func named(f func(*call) (any, error), names ...string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		query, err := url.ParseQuery(c.r.URL.RawQuery)
		if err != nil {
			return nil, &problem{Status: http.StatusBadRequest, Code: "invalid_query",
				Detail: "the query is invalid",
				Hint:   "write name=value, with & between two of them, and %20 for a space"}
		}
		for name := range query {
			if slices.Contains(names, name) {
				continue
			}
			p := &problem{Status: http.StatusBadRequest, Code: "invalid_query",
				Hint:   "take it out: there is none here",
				Detail: fmt.Sprintf("the parameter %.64q does not exist here; nothing was changed", name)}
			if len(names) > 0 {
				p.Hint = "use " + strings.Join(names, ", ")
			}
			return nil, p
		}
		return f(c)
	}
}

// find returns the queue of the path.
func (a *API) find(c *call) (*queue.Queue, error) {
	for _, q := range a.cfg.Queues() {
		if q.Name() == c.room {
			return q, nil
		}
	}
	return nil, errNoQueue
}

// ofQueue returns a handler of requests about the queue of the path.
func (a *API) ofQueue(do func(*call, *queue.Queue) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		q, err := a.find(c)
		if err != nil {
			return nil, err
		}
		return do(c, q)
	}
}

func (a *API) queues(c *call) (any, error) {
	all := []queue.Status{}
	for _, q := range a.cfg.Queues() {
		if !c.who.may(scopeRead, q.Name()) {
			continue
		}
		s, err := q.Status(c.r.Context())
		if err != nil {
			s.Reason = err.Error()
		}
		all = append(all, s)
	}
	return map[string]any{"queues": all}, nil
}

func (a *API) queue(c *call, q *queue.Queue) (any, error) {
	return q.Status(c.r.Context())
}

// changeQueue handles PATCH /v1/queues/{name}: {"rate": 50}.
func (a *API) changeQueue(c *call, q *queue.Queue) (any, error) {
	pairs, err := readPairs(c)
	if err != nil {
		return nil, err
	}
	rate, err := strconv.ParseFloat(pairs["rate"], 64)
	if err != nil || len(pairs) != 1 || !(rate >= 0 && rate <= queue.MaxRate) {
		c.done.Asked = asked(pairs)
		return nil, &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_change",
			Detail: "only rate can be changed: a number of jobs per second, or 0 for no rate",
			Hint:   `send {"rate": 50}; change its limits with PATCH /v1/limits/{limit}`}
	}
	if err := q.SetRate(c.r.Context(), rate); err != nil {
		return nil, err
	}
	c.done.After = pairs
	return q.Status(c.r.Context())
}

// steerQueue returns a handler that pauses or resumes a queue, or with ?tenant= one of its tenants.
func (a *API) steerQueue(
	whole func(*queue.Queue, context.Context) error, one func(*queue.Queue, context.Context, string) error,
) func(*call, *queue.Queue) (any, error) {
	return func(c *call, q *queue.Queue) (any, error) {
		query, err := c.r.URL.Query(), noBody(c)
		switch {
		case err != nil:
			return nil, err
		case len(query["tenant"]) > 1:
			return nil, badJob(http.StatusBadRequest, "invalid_query", "tenant can be given once")
		case query.Has("tenant"): // without a name, the jobs without a tenant
			c.done.After = map[string]string{"tenant": query.Get("tenant")}
			err = one(q, c.r.Context(), query.Get("tenant"))
		default:
			err = whole(q, c.r.Context())
		}
		if err != nil {
			return nil, err
		}
		return q.Status(c.r.Context())
	}
}

// tenantOf handles GET /v1/queues/{name}/tenants/{tenant}?count=100.
func (a *API) tenantOf(c *call, q *queue.Queue) (any, error) {
	count, err := countOf(c.r.URL.Query())
	if err != nil {
		return nil, err
	}
	s, err := q.Tenant(c.r.Context(), c.r.PathValue("tenant"), count)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// schedules handles GET /v1/queues/{name}/schedules.
func (a *API) schedules(c *call, q *queue.Queue) (any, error) {
	all, err := q.Schedules(c.r.Context())
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []queue.ScheduleStatus{}
	}
	return map[string]any{"schedules": all}, nil
}

// count answers with the number of affected jobs.
func (c *call) count(what string, n int, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	c.done.After = map[string]string{what: strconv.Itoa(n)}
	for name, values := range c.r.URL.Query() { // which ones
		c.done.After[name] = clip(strings.Join(values, " "))
	}
	return map[string]int{what: n}, nil
}

func (a *API) purgeQueue(c *call, q *queue.Queue) (any, error) {
	if err := noBody(c); err != nil {
		return nil, err
	}
	n, err := q.Purge(c.r.Context())
	return c.count("purged", n, err)
}

func (a *API) purgeDead(c *call, q *queue.Queue) (any, error) {
	which, err := deadOf(c)
	if err != nil {
		return nil, err
	}
	n, err := q.PurgeDead(c.r.Context(), which)
	return c.count("purged", n, err)
}

// noBody returns an error for a body that says something: a caller whose tenant or ids are in it means a
// part, and without parameters all jobs would be taken.
func noBody(c *call) error {
	if c.r.Method == http.MethodGet {
		return nil
	}
	body, err := readBody(c, maxBody, "write parameters into the URL")
	if text := strings.TrimSpace(string(body)); err == nil && text != "" && text != "{}" {
		return badJob(http.StatusBadRequest, "invalid_body",
			"this takes no body, and nothing was changed: write parameters into the URL, such as ?tenant=acme")
	}
	return err
}

// deadOf returns which dead jobs the query names: ?id=…&id=…&tenant=…&status=…&since=…&before=…&most=…;
// without a parameter it names all. A parameter without a value, such as of a variable that is not set, would
// name all, too.
func deadOf(c *call) (f queue.DeadFilter, err error) {
	if err := noBody(c); err != nil {
		return f, err
	}
	query := c.r.URL.Query()
	f.IDs = query["id"]
	bad := func(what string) error { return badJob(http.StatusBadRequest, "invalid_query", what) }
	for name, values := range query {
		switch {
		case name == "id" && (len(values) > maxKeysShown || slices.Contains(values, "")):
			return f, bad("an id is empty, or there are too many")
		case name != "id" && len(values) > 1:
			return f, bad(fmt.Sprintf("%s can be given once", name))
		}
	}
	if query.Has("tenant") {
		tenant := query.Get("tenant") // "": jobs without a tenant
		f.Tenant = &tenant
	}
	for name, to := range map[string]*int{"status": &f.Status, "most": &f.Most} {
		if query.Has(name) {
			if *to, err = strconv.Atoi(query.Get(name)); err != nil || *to < 1 {
				return f, bad(name + " must be a whole number above 0")
			}
		}
	}
	for name, to := range map[string]*time.Time{"since": &f.Since, "before": &f.Before} {
		if query.Has(name) {
			if *to, err = time.Parse(time.RFC3339, query.Get(name)); err != nil || to.Unix() < 0 {
				return f, bad(name + " must be a time such as 2026-12-24T18:00:00Z")
			}
		}
	}
	return f, nil
}

// redrive handles POST /v1/queues/{name}/redrive?id=…&id=….
func (a *API) redrive(c *call, q *queue.Queue) (any, error) {
	which, err := deadOf(c)
	if err != nil {
		return nil, err
	}
	n, err := q.Redrive(c.r.Context(), which)
	return c.count("redriven", n, err)
}

// countOf returns how many jobs a list may have.
func countOf(query url.Values) (count int, err error) {
	count = keysShown
	if s := query.Get("count"); s != "" {
		count, err = strconv.Atoi(s)
	}
	if err != nil || count < 1 || count > maxKeysShown {
		return 0, badJob(http.StatusBadRequest, "invalid_query",
			"count must be a whole number from 1 to "+strconv.Itoa(maxKeysShown))
	}
	return count, nil
}

func (a *API) deadJobs(c *call, q *queue.Queue) (any, error) {
	query := c.r.URL.Query()
	count, err := countOf(query)
	if err != nil {
		return nil, err
	}
	which, err := deadOf(c)
	if err != nil {
		return nil, err
	}
	jobs, next, err := q.Dead(c.r.Context(), which, query.Get("after"), count)
	if err != nil {
		return nil, err
	}
	return map[string]any{"jobs": jobs, "next": next}, nil
}

// saveJobs handles GET /v1/queues/{name}/jobs?dead=true: the jobs as NDJSON, in the form in which
// they can be put. An incomplete answer ends without its last chunk.
func (a *API) saveJobs(c *call, q *queue.Queue) (any, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	dead := query.Get("dead")
	if err != nil || dead != "" && dead != "true" && dead != "false" {
		return nil, badJob(http.StatusBadRequest, "invalid_query", "dead must be true or false")
	}
	w := bufio.NewWriterSize(c.w, 64<<10)
	begun := false
	err = q.Export(c.r.Context(), dead == "true", func(line []byte) error {
		if !begun {
			c.w.Header().Set("Content-Type", "application/x-ndjson")
			begun = true
		}
		_, err := w.Write(line)
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	if err != nil && begun {
		a.cfg.Log.Warn("saving jobs stopped before the end", "queue", q.Name(), "error", err, "request", c.id)
		panic(http.ErrAbortHandler)
	}
	return nil, err
}
