package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/ratelimit"
)

func (a *API) webhooks(c *call) (any, error) {
	all := []Webhook{}
	if a.cfg.Webhooks.List != nil {
		all = append(all, a.cfg.Webhooks.List(c.r.Context())...)
	}
	return map[string]any{"webhooks": all}, nil
}

// testWebhook handles POST /v1/webhooks/{webhook}/test. The wildcard is not {name}, so that the
// token of a room of the same name cannot send to it.
func (a *API) testWebhook(c *call) (any, error) {
	err := ErrNoWebhook
	id := ""
	if a.cfg.Webhooks.Test != nil {
		id, err = a.cfg.Webhooks.Test(c.r.Context(), c.r.PathValue("webhook"), c.who.String())
	}
	if err != nil {
		return nil, err
	}
	c.status = http.StatusAccepted
	c.done.After = map[string]string{"id": id}
	return map[string]string{"id": id}, nil
}

// LimitValues returns the values of a limit that may be shown, by the keys of the file. Keys under
// overrides may be secrets, and many, so it has their number and a digest that changes with them.
func LimitValues(l *ratelimit.Limit) map[string]string {
	told := auditLimit(l)
	delete(told, "name")
	delete(told, "source")
	if len(l.Overrides) > 0 {
		b, err := json.Marshal(l.Overrides) // sorted by key
		if err == nil {
			sum := sha256.Sum256(b)
			told["overrides"] = strconv.Itoa(len(l.Overrides)) + " (" + hex.EncodeToString(sum[:4]) + ")"
		}
	}
	return told
}
