package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// Webhooks gives access to the webhooks of a process. The zero value has none.
type Webhooks struct {
	// List returns the state of all webhooks. It may block.
	List func(ctx context.Context) []Webhook
	// Test sends a message of the kind test to a webhook, and returns its id when it is on the disk. It
	// returns ErrNoWebhook, or an error of package queue.
	Test func(ctx context.Context, name, by string) (id string, err error)
}

// ErrNoWebhook reports that there is no webhook of that name.
var ErrNoWebhook = errors.New("there is no such webhook")

// A Webhook is the state of a webhook. Its address is scheme and host: the rest may be a secret.
type Webhook struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	On      []string `json:"on"`
	Rooms   []string `json:"rooms"` // none: all
	// OffSince is when its receiver answered 410 Gone. Nothing has been sent since. Null: it is on.
	OffSince *time.Time `json:"off_since"`
	Node     string     `json:"node,omitempty"` // the node that sends
	Waiting  int        `json:"waiting"`        // messages not delivered yet
	Oldest   float64    `json:"oldest_seconds"` // age of the oldest of them
	Why      string     `json:"why"`            // why the figures of waiting messages are missing
	Sent     int64      `json:"sent"`           // since the webhook was first configured
	Failed   int64      `json:"failed"`         // attempts
	Dropped  int64      `json:"dropped"`        // messages

	LastSuccess *WebhookSuccess `json:"last_success"`
	LastFailure *WebhookFailure `json:"last_failure"`
}

// A WebhookSuccess is a message that the receiver accepted.
type WebhookSuccess struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// A WebhookFailure is a failed attempt.
type WebhookFailure struct {
	ID  string    `json:"id"`
	At  time.Time `json:"at"`
	Why string    `json:"why"` // without the text of the receiver's answer
}

func (a *API) webhookRoutes() []route {
	return []route{
		{"GET", "/v1/webhooks", scopeRead, false, a.webhooks},
		{"POST", "/v1/webhooks/{webhook}/test", scopeWrite, false, a.testWebhook},
	}
}

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

// webhookProblem converts an error of a webhook to a problem. It returns nil for other errors.
func webhookProblem(err error) *problem {
	if errors.Is(err, ErrNoWebhook) {
		return &problem{Status: http.StatusNotFound, Code: "no_such_webhook", Detail: err.Error(),
			Hint: "GET /v1/webhooks lists them; they are under webhooks in the configuration"}
	}
	return nil
}

// byKey is the context key of the author of a change.
type byKey struct{}

// by returns a context that names the sender of the request as the author of a change.
func (c *call) by() context.Context {
	return context.WithValue(c.r.Context(), byKey{}, c.who.String())
}

// Actor returns the author of a change of limits: id and name of a token, "" if not known.
func Actor(ctx context.Context) string {
	by, _ := ctx.Value(byKey{}).(string)
	return by
}

// LimitValues returns the values of a limit that may be shown, by the keys of the file. Keys under
// overrides may be secrets, and many, so it has their number and a digest that changes with them.
func LimitValues(l *headgate.LimitConfig) map[string]string {
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
