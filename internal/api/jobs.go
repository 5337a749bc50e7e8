package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate/headgate/queue"
)

// Bounds of waiting for the outcome of a job. Chosen: the command waits 70 s for an answer; and a node
// asks the host at most 2,000 times a second for those that wait.
const (
	maxWait  = 60 * time.Second
	maxWaits = 1000
)

// jobName returns which job the path names, and the rest of the query.
func jobName(c *call) (queue.JobName, url.Values, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	text := c.r.PathValue("job")
	name := queue.NameJob(text)
	switch by := query.Get("by"); {
	case err == nil && by == "":
	case err == nil && by == "id":
		name = queue.JobName{ID: text}
	case err == nil && by == "key":
		name = queue.JobName{Key: []byte(text)}
	default:
		return name, nil, badJob(http.StatusBadRequest, "invalid_query", "by must be id or key")
	}
	return name, query, nil
}

// job handles GET /v1/queues/{name}/jobs/{id or key}?wait=30s.
func (a *API) job(c *call, q *queue.Queue) (any, error) {
	c.quiet = true
	name, query, err := jobName(c)
	if err != nil {
		return nil, err
	}
	wait := time.Duration(0)
	if s := query.Get("wait"); s != "" {
		if wait, err = time.ParseDuration(s); err != nil || wait < 0 || wait > maxWait {
			return nil, badJob(http.StatusBadRequest, "invalid_query",
				fmt.Sprintf("wait must be a duration up to %v, such as 30s", maxWait))
		}
		select {
		case a.waits <- struct{}{}:
			defer func() { <-a.waits }()
		default:
			return nil, &problem{Status: http.StatusServiceUnavailable, Code: "busy",
				Detail: fmt.Sprintf("%d requests wait for jobs at this node", maxWaits),
				Hint:   "retry in a second, at another node, or without wait"}
		}
	}
	return found(q.Job(c.r.Context(), name, wait))
}

// found returns a job as an answer.
func found(s queue.JobStatus, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// cancelJob handles DELETE /v1/queues/{name}/jobs/{id or key}.
func (a *API) cancelJob(c *call, q *queue.Queue) (any, error) {
	name, _, err := jobName(c)
	if err != nil {
		return nil, err
	}
	s, err := q.Cancel(c.r.Context(), name)
	if err == nil {
		c.done.After = map[string]string{"canceled": s.ID}
	}
	return found(s, err)
}

// changeJob handles PATCH /v1/queues/{name}/jobs/{id or key}: {"at": "2026-12-24T18:00:00Z", "priority": 5}.
func (a *API) changeJob(c *call, q *queue.Queue) (any, error) {
	name, _, err := jobName(c)
	if err != nil {
		return nil, err
	}
	body, err := readBody(c, maxBody, "send only at and priority")
	if err != nil {
		return nil, err
	}
	var to queue.JobChange
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err = d.Decode(&to)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		return nil, &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_change", cause: err,
			Detail: "only at, a time, and priority, 0 to 9, of a job can be changed",
			Hint:   `send {"at": "2026-12-24T18:00:00Z"} or {"priority": 5}`}
	}
	s, err := q.Change(c.r.Context(), name, to)
	if err == nil {
		c.done.After = map[string]string{"changed": s.ID}
	}
	return found(s, err)
}
