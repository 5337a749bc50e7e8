package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/queue"
)

// Bounds of waiting for jobs, and for the outcome of one. Chosen: the command waits 70 s for an answer; and
// a node asks the host at most 2,000 times a second for those that wait.
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
		leave, err := a.waits.enter(c)
		if err != nil {
			return nil, err
		}
		defer leave()
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

// maxWaitsOfToken is how many requests of one token wait at a node, so that one program does not take all
// places. Chosen: a quarter.
const maxWaitsOfToken = maxWaits / 4

// A waitRoom bounds the requests that wait, at a node and for each token. Tokens without one have no entry.
type waitRoom struct {
	mu   sync.Mutex
	all  int
	each map[string]int // by the token's id
}

// enter takes a place for a request, until leave is called, or returns why there is none.
func (w *waitRoom) enter(c *call) (leave func(), err error) {
	busy := func(detail string) error {
		return &problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: detail,
			Hint: "retry in a second, at another node, or without wait"}
	}
	id := c.who.token.ID
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.all >= maxWaits:
		return nil, busy(fmt.Sprintf("%d requests wait at this node", maxWaits))
	case w.each[id] >= maxWaitsOfToken:
		return nil, busy(fmt.Sprintf("%d requests of this token wait at this node", maxWaitsOfToken))
	}
	if w.each == nil {
		w.each = map[string]int{}
	}
	w.all++
	w.each[id]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all--
		if w.each[id]--; w.each[id] == 0 {
			delete(w.each, id)
		}
	}, nil
}

// A span is a duration in JSON, such as "30s".
type span time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (s *span) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("it is below 0")
	}
	*s = span(d)
	return err
}

// A claimRequest is the body of a claim, and of what becomes of claims: each uses a part of it.
type claimRequest struct {
	Max    int    `json:"max"`
	Lease  span   `json:"lease"`
	Wait   span   `json:"wait"`
	Worker string `json:"worker"`
}

// A settleRequest is the body of ack, nack and extend.
type settleRequest struct {
	Receipts []string `json:"receipts"`
	Lease    span     `json:"lease"` // of extend
	Delay    span     `json:"delay"` // of nack, and what follows
	Why      string   `json:"why"`
	Dead     bool     `json:"dead"`
	Untried  bool     `json:"untried"`
}

const settleExample = `send {"receipts": ["…"]}, with the receipts of a claim`

// readClaim reads a JSON object into v. All its keys must be among these.
func readClaim(c *call, v any, example string, keys ...string) error {
	body, err := readBody(c, maxBody, "claim or settle fewer jobs at once")
	if err != nil {
		return err
	}
	bad := func(detail string) error {
		return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_claim", Detail: detail, Hint: example}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	var sent map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&sent); err != nil || sent == nil {
		return bad("the body is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("something follows the JSON object")
	}
	for _, key := range keys {
		delete(sent, key)
	}
	for key := range sent {
		return bad(fmt.Sprintf("the key %.64q does not exist here", key))
	}
	if err := json.Unmarshal(body, v); err != nil {
		return bad("a value is not of its type: " + clip(err.Error()))
	}
	return nil
}

// A claimedJob is a job of a claim. Its body has the form in which jobs are put.
type claimedJob struct {
	Receipt  string            `json:"receipt"`
	ID       string            `json:"id"`
	Attempt  int               `json:"attempt"`
	Until    time.Time         `json:"until"`
	Put      time.Time         `json:"put_at"`
	Key      string            `json:"key,omitempty"`
	OrderKey string            `json:"order_key,omitempty"`
	Schedule string            `json:"schedule,omitempty"`
	Tenant   string            `json:"tenant,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Body     json.RawMessage   `json:"body,omitempty"`
	Text     *string           `json:"text,omitempty"`
	Base64   []byte            `json:"base64,omitempty"`
}

func newClaimedJob(j *queue.Claimed) claimedJob {
	out := claimedJob{Receipt: j.Receipt, ID: j.ID, Attempt: j.Attempt, Until: j.Until, Put: j.Enqueued.UTC(),
		Key: j.Key, OrderKey: j.OrderKey, Schedule: j.Schedule, Tenant: j.Tenant, Priority: j.Priority,
		Headers: j.Headers}
	text := string(j.Body)
	switch {
	case !utf8.Valid(j.Body): // json.Valid does not look at that; a strict reader refuses the whole answer
		out.Base64 = j.Body
	case j.Headers["Content-Type"] == "application/json" && json.Valid(j.Body):
		out.Body = j.Body
	default:
		out.Text = &text
	}
	return out
}

// claimJobs handles POST /v1/queues/{name}/claim: {"max": 10, "lease": "30s", "wait": "30s"}.
func (a *API) claimJobs(c *call, q *queue.Queue) (any, error) {
	c.quiet = true
	const example = `send {"max": 10, "lease": "30s", "wait": "30s", "worker": "w1"}, or a part of it`
	var said claimRequest
	if err := readClaim(c, &said, example, "max", "lease", "wait", "worker"); err != nil {
		return nil, err
	}
	w := queue.Want{Max: said.Max, Lease: time.Duration(said.Lease), Wait: time.Duration(said.Wait),
		Worker: said.Worker}
	switch {
	case w.Wait > maxWait:
		return nil, &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_claim",
			Detail: fmt.Sprintf("the wait is %v, more than %v", w.Wait, maxWait), Hint: example}
	case w.Wait > 0:
		leave, err := a.waits.enter(c)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	jobs, err := q.Claim(c.r.Context(), w)
	switch {
	case c.r.Context().Err() != nil: // workers leave: no error of this node
		return nil, &problem{Status: http.StatusRequestTimeout, Code: "client_left",
			Detail: "the worker has left before it had an answer", Hint: "claim again"}
	case err != nil:
		return nil, err
	}
	all := make([]claimedJob, len(jobs))
	for i := range jobs {
		all[i] = newClaimedJob(&jobs[i])
	}
	return map[string]any{"jobs": all}, nil
}

// A claimResult is the answer about one receipt.
type claimResult struct {
	OK bool `json:"ok"`
	queue.Settled
}

// ackJobs handles POST /v1/queues/{name}/ack: {"receipts": ["…"]}.
func (a *API) ackJobs(c *call, q *queue.Queue) (any, error) {
	c.quiet = true
	var said settleRequest
	if err := readClaim(c, &said, settleExample, "receipts"); err != nil {
		return nil, err
	}
	return resultsOf(q.Ack(c.r.Context(), said.Receipts...))
}

// nackJobs handles POST /v1/queues/{name}/nack: {"receipts": ["…"], "delay": "10s", "why": "no table"}.
func (a *API) nackJobs(c *call, q *queue.Queue) (any, error) {
	c.quiet = true
	var said settleRequest
	if err := readClaim(c, &said, settleExample, "receipts", "delay", "why", "dead", "untried"); err != nil {
		return nil, err
	}
	n := queue.Nack{Delay: time.Duration(said.Delay), Reason: said.Why, Dead: said.Dead,
		Untried: said.Untried}
	return resultsOf(q.Nack(c.r.Context(), n, said.Receipts...))
}

// extendJobs handles POST /v1/queues/{name}/extend: {"receipts": ["…"], "lease": "30s"}.
func (a *API) extendJobs(c *call, q *queue.Queue) (any, error) {
	c.quiet = true
	var said settleRequest
	if err := readClaim(c, &said, settleExample, "receipts", "lease"); err != nil {
		return nil, err
	}
	return resultsOf(q.Extend(c.r.Context(), time.Duration(said.Lease), said.Receipts...))
}

// resultsOf answers about each receipt. If none counts, the answer is an error.
func resultsOf(all []queue.Settled, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	results, count, lost := make([]claimResult, len(all)), 0, false
	for i := range all {
		results[i] = claimResult{all[i].Err() == nil, all[i]}
		if results[i].OK {
			count++
		}
		lost = lost || errors.Is(all[i].Err(), queue.ErrLease)
	}
	switch {
	case count > 0:
		return map[string]any{"count": count, "results": results}, nil
	case !lost:
		return nil, &problem{Status: http.StatusUnprocessableEntity, Code: queue.CodeReceipt,
			Detail: "none of this is the receipt of a claim", Hint: settleExample, Results: results}
	}
	return nil, &problem{Status: http.StatusGone, Code: queue.CodeLease, Results: results,
		Detail: "no receipt holds its job: the lease is over, or it has been acknowledged before",
		Hint: "results has the state of each job: delivered is done; a job that waits or is under way belongs " +
			"to whoever claims it; claim with a longer lease, or extend it in time"}
}
