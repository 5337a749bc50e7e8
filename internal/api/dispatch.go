package api

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"strings"
	"time"
)

// dispatch calls the handler of the method, or answers that there is none.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request, routes []route) {
	c := &call{w: w, r: r, id: strings.ToLower(rand.Text()[:12]),
		path: loggedPath(r.URL.Path), room: r.PathValue("name"), who: who{zone: a.cfg.Zone},
		wrapped: strings.HasPrefix(r.URL.Path, "/client/v4/")}
	h := w.Header()
	h.Set("X-Request-Id", c.id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	// Answers contain text that tenants wrote. An answer that is opened as a document must not run
	// it.
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'self'")
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var methods []string
	for _, e := range routes {
		if e.method == method {
			a.answer(c, e)
			return
		}
		methods = append(methods, e.method)
	}
	if routes == nil {
		a.refuse(c, &problem{Status: http.StatusNotFound, Code: "no_such_path",
			Detail: "there is nothing at this path", Hint: "start with GET /v1/rooms"})
		return
	}
	h.Set("Allow", strings.Join(methods, ", "))
	a.refuse(c, &problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
		Detail: "this path does not support this method", Hint: "use " + strings.Join(methods, " or ")})
}

// answer admits a call, handles it and answers. A change is in the audit log before it is answered,
// also when it failed.
func (a *API) answer(c *call, e route) {
	writes := e.scope == scopeWrite || e.scope == scopeRelease
	if writes {
		c.done = AuditEntry{At: time.Now().UTC(), Remote: c.r.RemoteAddr, Room: clip(c.room),
			What: c.r.Method + " " + c.path, RequestID: c.id}
	}
	var v any
	p := a.admit(c, e)
	if p == nil {
		var err error
		if writes {
			err = a.cfg.Audit.ready() // a change that cannot be logged is not made
		}
		if err == nil {
			v, err = e.handle(c)
		}
		p = problemOf(err)
	}
	if writes {
		a.record(c, p)
	}
	switch {
	case p != nil:
		a.refuse(c, p)
	case v != nil:
		writeJSON(c.w, "application/json", cmp.Or(c.status, http.StatusOK), v)
	}
}

// record writes a change, or its rejection, to the audit log, and a change to the log too.
func (a *API) record(c *call, p *problem) {
	e := &c.done
	e.Who, e.Name, e.Result = c.who.token.ID, c.who.token.Name, "ok"
	if p != nil {
		e.Result = p.Code
		if p.Status == http.StatusTooManyRequests { // guessing must not fill the disk
			return
		}
	}
	if err := a.cfg.Audit.Append(e); err != nil {
		// The change is in force, so the answer must not say that it failed.
		a.cfg.Log.Error("audit log not written", "request", c.id, "error", err)
	}
	if p == nil {
		a.cfg.Log.Info("operator", "what", e.What, "by", c.who.String(),
			"before", e.Before, "after", e.After, "request", c.id)
	}
}
