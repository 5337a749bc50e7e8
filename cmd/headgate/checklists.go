package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/limit"
)

// A queueSummary is what check prints about a queue.
type queueSummary struct {
	Name         string   `json:"name"`
	Method       string   `json:"method"`
	Address      string   `json:"address"`
	Limits       []string `json:"limits"`
	TenantLimits []string `json:"tenant_limits"`
	Rate         int64    `json:"rate"` // jobs a second; 0: no limit
	Concurrency  int      `json:"concurrency"`
}

// A webhookSummary is what check prints about a webhook.
type webhookSummary struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	On      []string `json:"on"`
	Rooms   []string `json:"rooms"` // empty: all rooms and limits
}

func limitsOf(cfg *config.Config) (all []shownLimit) {
	for i := range cfg.Limits {
		l := &cfg.Limits[i]
		all = append(all, shownLimit{
			Name: l.Name, Algorithm: l.Algorithm.String(), Amount: l.Amount, Unit: l.Unit,
			Window: windowOf(&l.Rule), Align: l.Align.String(), Burst: l.Burst, Shadow: l.Shadow,
			Source: "file",
		})
	}
	return all
}

func windowOf(r *limit.Rule) string {
	if r.Window == 0 {
		return ""
	}
	return r.Window.String()
}

func queuesOf(cfg *config.Config) (all []queueSummary) {
	for i := range cfg.Queues {
		q := &cfg.Queues[i]
		all = append(all, queueSummary{
			Name: q.Name, Method: q.Target.Method, Address: addressOf(q.Target.URL),
			Limits: append([]string{}, q.Limits...), TenantLimits: append([]string{}, q.TenantLimits...),
			Rate: q.Rate, Concurrency: q.Concurrency,
		})
	}
	return all
}

func webhooksOf(cfg *config.Config) (all []webhookSummary) {
	for i := range cfg.Webhooks {
		h := &cfg.Webhooks[i]
		all = append(all, webhookSummary{Name: h.Name, Address: addressOf(h.URL),
			On: append([]string{}, h.On...), Rooms: append([]string{}, h.Rooms...)})
	}
	return all
}

// addressOf returns scheme and host of a URL. Many services have a secret in the rest.
func addressOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// String returns the queue as one line.
func (q *queueSummary) String() string {
	s := q.Method + " to " + q.Address
	if len(q.Limits) > 0 {
		s += ", limits " + strings.Join(q.Limits, ", ")
	}
	if len(q.TenantLimits) > 0 {
		s += ", limits of each tenant " + strings.Join(q.TenantLimits, ", ")
	}
	if q.Rate > 0 {
		s += fmt.Sprintf(", %d jobs a second", q.Rate)
	}
	return s + fmt.Sprintf(", %d at once", q.Concurrency)
}

// String returns the webhook as one line.
func (h *webhookSummary) String() string {
	s := h.Address + ", on " + strings.Join(h.On, ", ")
	if len(h.Rooms) > 0 {
		s += ", of rooms " + strings.Join(h.Rooms, ", ")
	}
	return s
}
