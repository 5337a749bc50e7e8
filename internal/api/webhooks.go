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

// Webhooks are the webhooks of a process. The zero value is none.
type Webhooks struct {
	// List tells where all webhooks stand. It may block.
	List func(ctx context.Context) []Webhook
	// Test sends a message of the kind test to a webhook, and returns its id when it is on the disk. It
	// returns ErrNoWebhook, or an error of package queue.
	Test func(ctx context.Context, name, by string) (id string, err error)
}

// ErrNoWebhook: there is no webhook of that name.
var ErrNoWebhook = errors.New("there is no such webhook")

// A Webhook is where a webhook stands. Its address is scheme and host: the rest may be a secret.
type Webhook struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	On      []string `json:"on"`
	Rooms   []string `json:"rooms"` // none: all
	// OffSince is when its receiver has answered 410 Gone: nothing is sent since. Null: it is on.
	OffSince *time.Time `json:"off_since"`
	Node     string     `json:"node,omitempty"` // that sends
	Waiting  int        `json:"waiting"`        // messages not yet taken
	Oldest   float64    `json:"oldest_seconds"` // of them
	Why      string     `json:"why"`            // nothing can be told of what waits
	Sent     int64      `json:"sent"`           // since it was configured first
	Failed   int64      `json:"failed"`         // attempts
	Dropped  int64      `json:"dropped"`        // messages

	LastSuccess *WebhookSuccess `json:"last_success"`
	LastFailure *WebhookFailure `json:"last_failure"`
}

// A WebhookSuccess is a message that was taken.
type WebhookSuccess struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// A WebhookFailure is an attempt that has failed.
type WebhookFailure struct {
	ID  string    `json:"id"`
	At  time.Time `json:"at"`
	Why string    `json:"why"` // without what the receiver has said
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

// testWebhook is POST /v1/webhooks/{webhook}/test. Its name is not {name}: the token of a room of
// the same name may not send to it.
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

// webhookProblem explains an error of a webhook, nil for one of something else.
func webhookProblem(err error) *problem {
	if errors.Is(err, ErrNoWebhook) {
		return &problem{Status: http.StatusNotFound, Code: "no_such_webhook", Detail: err.Error(),
			Hint: "GET /v1/webhooks lists them; they stand under webhooks in the configuration"}
	}
	return nil
}

// byKey is where a context has who asks for a change.
type byKey struct{}

// by is the context of a change of who sends the request.
func (c *call) by() context.Context {
	return context.WithValue(c.r.Context(), byKey{}, c.who.String())
}

// By is who asks for a change of limits: id and name of a token, "" for nobody known.
func Actor(ctx context.Context) string {
	by, _ := ctx.Value(byKey{}).(string)
	return by
}

// LimitValues are what can be told of a limit, by the keys of the file. Keys under overrides may be
// secrets, and many: their number is told, and a digest that shows that they have changed.
func LimitValues(l *headgate.LimitConfig) map[string]string {
	told := auditLimit(l)
	delete(told, "name")
	delete(told, "source")
	if len(l.Overrides) > 0 {
		b, err := json.Marshal(l.Overrides) // in order of the keys
		if err == nil {
			sum := sha256.Sum256(b)
			told["overrides"] = strconv.Itoa(len(l.Overrides)) + " (" + hex.EncodeToString(sum[:4]) + ")"
		}
	}
	return told
}
