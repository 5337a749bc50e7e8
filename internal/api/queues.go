package api

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

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
			return nil, badJob(http.StatusBadRequest, "invalid_query", "the query is invalid")
		}
		for name := range query {
			if slices.Contains(names, name) {
				continue
			}
			p := badJob(http.StatusBadRequest, "invalid_query",
				fmt.Sprintf("the parameter %.64q does not exist here; nothing was changed", name))
			if len(names) > 0 {
				p.Hint = "use " + strings.Join(names, " and ")
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

func (a *API) pauseQueue(c *call, q *queue.Queue) (any, error) {
	if err := q.Pause(c.r.Context()); err != nil {
		return nil, err
	}
	return q.Status(c.r.Context())
}

func (a *API) resumeQueue(c *call, q *queue.Queue) (any, error) {
	if err := q.Resume(c.r.Context()); err != nil {
		return nil, err
	}
	return q.Status(c.r.Context())
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
	return map[string]int{what: n}, nil
}

func (a *API) purgeQueue(c *call, q *queue.Queue) (any, error) {
	n, err := q.Purge(c.r.Context())
	return c.count("purged", n, err)
}

func (a *API) purgeDead(c *call, q *queue.Queue) (any, error) {
	ids, err := idsOf(c)
	if err != nil {
		return nil, err
	}
	n, err := q.PurgeDead(c.r.Context(), ids...)
	return c.count("purged", n, err)
}

// idsOf returns the ids of the jobs in the query: ?id=…&id=…
func idsOf(c *call) ([]string, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil || len(query["id"]) > maxKeysShown {
		return nil, badJob(http.StatusBadRequest, "invalid_query", "the query is invalid, or has too many ids")
	}
	return query["id"], nil
}

// redrive handles POST /v1/queues/{name}/redrive?id=…&id=…; without an id it applies to all dead
// jobs.
func (a *API) redrive(c *call, q *queue.Queue) (any, error) {
	ids, err := idsOf(c)
	if err != nil {
		return nil, err
	}
	n, err := q.Redrive(c.r.Context(), ids...)
	return c.count("redriven", n, err)
}

func (a *API) deadJobs(c *call, q *queue.Queue) (any, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	count := keysShown
	if s := query.Get("count"); err == nil && s != "" {
		count, err = strconv.Atoi(s)
	}
	if err != nil || count < 1 || count > maxKeysShown {
		return nil, badJob(http.StatusBadRequest, "invalid_query",
			"count must be a whole number from 1 to "+strconv.Itoa(maxKeysShown))
	}
	jobs, next, err := q.Dead(c.r.Context(), query.Get("after"), count)
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
