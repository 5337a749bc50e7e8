package api

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/manage"
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
	Faults    []*config.Fault `json:"faults,omitempty"` // each mistake with its own hint
	Lines     []lineFault     `json:"lines,omitempty"`  // invalid lines among many jobs
	Errors    manage.Faults   `json:"errors,omitempty"` // with positions in the body

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
			Detail: "there is no such room", Hint: "GET /v1/rooms lists them"}
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
