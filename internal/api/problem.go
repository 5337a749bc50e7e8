package api

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/queue"
)

// A problem is an answer that explains what is wrong and what to do (RFC 9457).
type problem struct {
	Type      string          `json:"type"` // about:blank, because the code identifies the problem
	Title     string          `json:"title"`
	Status    int             `json:"status"`
	Detail    string          `json:"detail"`
	Code      string          `json:"code"`
	Hint      string          `json:"hint"`
	RequestID string          `json:"request_id"`
	Faults    []*config.Fault `json:"faults,omitempty"`  // each mistake with its own hint
	Lines     []lineFault     `json:"lines,omitempty"`   // invalid lines among many jobs
	Errors    manage.Faults   `json:"errors,omitempty"`  // with positions in the body
	Results   []claimResult   `json:"results,omitempty"` // of the receipts of claims

	cause error // only for the log: it may contain paths
}

func (p *problem) Error() string { return p.Detail }

// refuse answers with a problem and logs it.
func (a *API) refuse(c *call, p *problem) {
	p.Type, p.Title, p.RequestID = "about:blank", http.StatusText(p.Status), c.id
	if p.Status == http.StatusUnauthorized {
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
	}
	level := slog.LevelInfo
	switch {
	case p.Status >= 500:
		level = slog.LevelError
	case p.Status == http.StatusTooManyRequests, c.quiet: // guessing must not fill the log
		level = slog.LevelDebug
	}
	why := p.Detail
	if p.cause != nil {
		why = p.cause.Error()
	}
	a.cfg.Log.Log(c.r.Context(), level, "operator refused", "code", p.Code, "why", why,
		"method", c.r.Method, "path", c.path, "remote", c.r.RemoteAddr,
		"by", c.who.String(), "request", c.id)
	if c.wrapped {
		refuseWrapped(c, p)
		return
	}
	writeJSON(c.w, "application/problem+json", p.Status, p)
}

// problemOf converts an error of a handler or of the Process to a problem.
func problemOf(err error) *problem {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if l, ok := errors.AsType[*RollbackError](err); ok {
		return &problem{Status: http.StatusInternalServerError, Code: "half_done", cause: err,
			Detail: l.Left, Hint: l.Do}
	}
	if e, ok := errors.AsType[*RejectedError](err); ok {
		return &problem{Status: http.StatusConflict, Code: "refused", cause: e.Err, Detail: e.Reason, Hint: e.Do}
	}
	if p := queueProblem(err); p != nil {
		return p
	}
	if p := webhookProblem(err); p != nil {
		return p
	}
	if p := managedProblem(err); p != nil {
		return p
	}
	if faults := config.Faults(err); faults != nil {
		return faulty(faults)
	}
	switch {
	case errors.Is(err, ErrDamaged):
		return &problem{Status: http.StatusConflict, Code: "room_damaged",
			Detail: "cannot read the record of this room: it admits no visitors and cannot be changed",
			Hint:   "headgate doctor explains how to restore the record"}
	case errors.Is(err, ErrNoRoom):
		return &problem{Status: http.StatusNotFound, Code: "no_such_room",
			Detail: "there is no such room", Hint: "GET /v1/rooms or headgate status lists the rooms"}
	case errors.Is(err, ErrNoKey):
		return &problem{Status: http.StatusNotFound, Code: "no_such_key", Detail: err.Error(),
			Hint: "GET /v1/keys or headgate key list lists the keys"}
	case errors.Is(err, ErrKeySeals):
		return &problem{Status: http.StatusConflict, Code: "key_seals", Detail: err.Error(),
			Hint: "create another key with headgate key rotate; in a cluster it is used after 30 s"}
	case errors.Is(err, ErrNoAnalytics):
		return &problem{Status: http.StatusNotFound, Code: "analytics_off", Detail: err.Error(),
			Hint: "set analytics: {enabled: true} in the configuration, and restart headgate"}
	case errors.Is(err, ErrAlone):
		return &problem{Status: http.StatusNotFound, Code: "no_cluster", Detail: err.Error(),
			Hint: "create the files of a cluster with headgate cluster init"}
	case errors.Is(err, ErrNoCodes):
		return &problem{Status: http.StatusNotFound, Code: "no_codes", Detail: err.Error(),
			Hint: "add identity: {codes: {secret_file: codes.key}} to the room in the configuration"}
	case errors.Is(err, invite.ErrTooMany):
		return &problem{Status: http.StatusConflict, Code: "too_many_revoked", Detail: err.Error(),
			Hint: "revoke whole batches, and allow those again that have ended"}
	case errors.Is(err, headgate.ErrNoTicket):
		return &problem{Status: http.StatusNotFound, Code: "no_such_ticket",
			Detail: "no room knows this ticket",
			Hint: "the id is at the foot of the waiting page, and is headgate.ticket in " +
				"the JSON answer; ids from before the line was reset are unknown"}
	case errors.Is(err, config.ErrNoFile):
		return &problem{Status: http.StatusConflict, Code: "no_config_file", Detail: err.Error(),
			Hint: "write a configuration file and start with headgate run --config headgate.yaml"}
	case errors.Is(err, headgate.ErrNotEnded):
		return &problem{Status: http.StatusServiceUnavailable, Code: "not_ended", Detail: err.Error(),
			Hint: "retry, at any node"}
	case errors.Is(err, ErrBusy):
		return &problem{Status: http.StatusServiceUnavailable, Code: "not_ready",
			Detail: err.Error(), Hint: "retry when /readyz returns ok"}
	}
	p := &problem{Status: http.StatusInternalServerError, Code: "failed", cause: err,
		Detail: "the request failed; nothing has changed",
		Hint:   "the log of headgate has the reason under this request id"}
	if h, ok := errors.AsType[*hint.Error](err); ok {
		p.Code, p.Hint = "data_folder", h.Do
	}
	return p
}

// faulty converts faults of package config, of a file or of a change, to a problem.
func faulty(faults []*config.Fault) *problem {
	p := &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_change", Faults: faults,
		Hint: faults[0].Hint}
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.Error())
		if f.File != "" {
			p.Code = "invalid_config"
		}
	}
	p.Detail = strings.Join(lines, "\n")
	return p
}

// managedProblem converts an error of package manage to a problem. It returns nil for other errors.
func managedProblem(err error) *problem {
	missing := func(hint string) *problem {
		return &problem{Status: http.StatusNotFound, Code: "not_found", Detail: err.Error(), Hint: hint}
	}
	if f, ok := errors.AsType[manage.Faults](err); ok {
		return &problem{Status: http.StatusBadRequest, Code: "invalid", Detail: f.Error(), Hint: f[0].Hint,
			Errors: f}
	}
	if e, ok := errors.AsType[*NotPersistedError](err); ok {
		return &problem{Status: http.StatusServiceUnavailable, Code: "not_kept", cause: err,
			Detail: e.Reason, Hint: e.Do}
	}
	switch {
	case errors.Is(err, manage.ErrNoZone):
		return missing("GET /v1/zones lists them; they are under zones in the configuration")
	case errors.Is(err, manage.ErrNoRoom), errors.Is(err, manage.ErrNoEvent),
		errors.Is(err, manage.ErrNoRule):
		return missing("list them; it may have been deleted, or belong to another zone")
	case errors.Is(err, manage.ErrNoChange):
		return missing("GET /v1/history lists them; old ones are deleted")
	case errors.Is(err, manage.ErrVersion):
		return &problem{Status: http.StatusPreconditionFailed, Code: "changed", Detail: err.Error(),
			Hint: "read it again, and send its ETag as If-Match"}
	case errors.Is(err, manage.ErrSince):
		return &problem{Status: http.StatusConflict, Code: "changed", Detail: err.Error(),
			Hint: "GET /v1/history shows the later changes"}
	case errors.Is(err, manage.ErrNewer):
		return &problem{Status: http.StatusServiceUnavailable, Code: "newer_record", Detail: err.Error(),
			Hint: "upgrade this node"}
	}
	return nil
}

// refuseWrapped answers with a problem in the format of Cloudflare's API. Clients of that API retry
// forever after 409, so it is never sent.
func refuseWrapped(c *call, p *problem) {
	status := p.Status
	if status == http.StatusConflict || status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	number := numberBase + status
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		number = numberAuth
	}
	e := envelope{Errors: []told{}, Messages: []told{}}
	for _, f := range p.Errors {
		e.Errors = append(e.Errors, told{Code: number, Message: f.Error() + ": " + f.Hint,
			Source: &source{f.Pointer}, Own: &toldOurs{Code: f.Code, Hint: f.Hint, RequestID: c.id}})
	}
	if len(p.Errors) == 0 {
		e.Errors = []told{{Code: number, Message: p.Detail, Own: &toldOurs{p.Code, p.Hint, c.id}}}
	}
	writeJSON(c.w, "application/json", status, e)
}

// queueProblem converts an error of a queue to a problem. It returns nil for other errors.
func queueProblem(err error) *problem {
	switch {
	case errors.Is(err, errNoQueue):
		return &problem{Status: http.StatusNotFound, Code: "no_such_queue", Detail: err.Error(),
			Hint: "GET /v1/queues or headgate queue status lists them; they are under queues in the configuration"}
	case errors.Is(err, queue.ErrFull):
		return &problem{Status: http.StatusInsufficientStorage, Code: "queue_full", Detail: err.Error(),
			Hint: "retry when jobs are delivered and the disk has free space, raise max_waiting or " +
				"max_bytes of the queue, or lower its key_window"}
	case errors.Is(err, queue.ErrJob):
		return badJob(http.StatusUnprocessableEntity, "invalid_job", err.Error())
	case errors.Is(err, queue.ErrClaim):
		return badJob(http.StatusUnprocessableEntity, "invalid_claim", err.Error())
	case errors.Is(err, queue.ErrPush):
		return &problem{Status: http.StatusConflict, Code: "not_pulled", Detail: err.Error(),
			Hint: "write pull: {lease: 30s} in place of target in the configuration of the queue"}
	case errors.Is(err, queue.ErrBusy):
		return &problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: err.Error(),
			Hint: "retry in some seconds"}
	case errors.Is(err, queue.ErrTenants):
		return &problem{Status: http.StatusConflict, Code: "too_many_paused", Detail: err.Error(),
			Hint: "paused_tenants of GET /v1/queues/{name} lists them"}
	case errors.Is(err, queue.ErrPlace):
		return badJob(http.StatusBadRequest, "invalid_query", err.Error()+": set after to the next of the previous answer")
	case errors.Is(err, queue.ErrWrite):
		return &problem{Status: http.StatusServiceUnavailable, Code: "not_written", cause: err,
			Detail: "cannot write the jobs to disk; some or all of them may be there",
			Hint:   "put them again with the same keys; duplicates are dropped"}
	case errors.Is(err, queue.ErrNoJob):
		return &problem{Status: http.StatusNotFound, Code: "no_such_job", Detail: err.Error(),
			Hint: "outcomes, outcome_age and key_window of the queue bound what it remembers; " +
				"?by=key finds a key that looks like an ID"}
	case errors.Is(err, queue.ErrUnderWay):
		return &problem{Status: http.StatusConflict, Code: "job_under_way",
			Detail: "the job is being delivered: nothing was changed",
			Hint:   "GET it with ?wait=30s, and retry if it waits again"}
	case errors.Is(err, queue.ErrEnded):
		return &problem{Status: http.StatusConflict, Code: "job_ended", Detail: err.Error(),
			Hint: "GET it for its tries; DELETE and redrive dead jobs under /v1/queues/{name}/dead and /redrive"}
	case errors.Is(err, queue.ErrUnsure):
		return &problem{Status: http.StatusServiceUnavailable, Code: "not_certain", cause: err,
			Detail: "it is not certain that the change is on disk: it may take effect",
			Hint:   "send it again until the answer is certain"}
	case errors.Is(err, queue.ErrNoHost), errors.Is(err, queue.ErrClosed):
		return &problem{Status: http.StatusServiceUnavailable, Code: "no_host", cause: err,
			Detail: "no node hosts the queue at the moment; you can put jobs, and they wait",
			Hint:   "retry in some seconds"}
	}
	return nil
}

// webhookProblem converts an error of a webhook to a problem. It returns nil for other errors.
func webhookProblem(err error) *problem {
	if errors.Is(err, ErrNoWebhook) {
		return &problem{Status: http.StatusNotFound, Code: "no_such_webhook", Detail: err.Error(),
			Hint: "GET /v1/webhooks or headgate webhook list lists them; they are under webhooks in the configuration"}
	}
	return nil
}

// A lineFault describes what is wrong with a line; the first line is 1.
type lineFault struct {
	Line   int    `json:"line"`
	Detail string `json:"detail"`
}

func badJob(status int, code, detail string) *problem {
	return &problem{Status: status, Code: code, Detail: detail, Hint: "see docs/queues.md"}
}
