package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/hint"
)

// These are the timeouts of headgate webhook test. Chosen: the receiver has 15 s to answer.
const (
	webhookPatience = 20 * time.Second
	webhookAgain    = 250 * time.Millisecond
)

// webhookCommand shows the state of webhooks, and tests one.
func webhookCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, words, err := operatorFlags(flag.NewFlagSet("webhook", flag.ContinueOnError), "webhook", args)
	if err != nil {
		return err
	}
	verb := ""
	if len(words) > 0 {
		verb, words = words[0], words[1:]
	}
	switch n := len(words); {
	case verb == "list" && n == 0:
		var all []api.Webhook
		if all, err = o.webhooks(ctx); err == nil {
			fmt.Fprint(stdout, webhookTable(all))
		}
	case verb == "test" && n == 1:
		err = o.testWebhook(ctx, stdout, words[0])
	default:
		return usageFault("webhook: what is to be done?",
			"write headgate webhook list, webhook test WEBHOOK, or see headgate help webhook")
	}
	return err
}

func (o *operator) webhooks(ctx context.Context) ([]api.Webhook, error) {
	var all struct {
		Webhooks []api.Webhook `json:"webhooks"`
	}
	err := o.do(ctx, http.MethodGet, "/v1/webhooks", nil, &all)
	return all.Webhooks, err
}

// testWebhook sends a test and waits for the result.
func (o *operator) testWebhook(ctx context.Context, w io.Writer, name string) error {
	var sent struct {
		ID string `json:"id"`
	}
	err := o.do(ctx, http.MethodPost, "/v1/webhooks/"+url.PathEscape(name)+"/test", nil, &sent)
	if err != nil {
		return err
	}
	began := time.Now()
	for time.Since(began) < webhookPatience {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(webhookAgain):
		}
		all, err := o.webhooks(ctx)
		if err != nil {
			return err
		}
		for i := range all {
			x := &all[i]
			switch {
			case x.Name != name:
			case x.LastSuccess != nil && x.LastSuccess.ID == sent.ID:
				fmt.Fprintf(w, "taken after %v: %s\n",
					time.Since(began).Round(webhookAgain), sent.ID)
				return nil
			case x.LastFailure != nil && x.LastFailure.ID == sent.ID:
				return &hint.Error{Text: "not taken: " + x.LastFailure.Why,
					Do: "look at the receiver at " + x.Address + ", and test again"}
			}
		}
	}
	return &hint.Error{Text: "not sent yet: other messages wait before it",
		Do: "headgate webhook list says how many, and how the last attempt went"}
}

// webhookTable formats webhooks in 80 columns, with the last error if nothing was accepted since.
func webhookTable(all []api.Webhook) string {
	var b strings.Builder
	row := func(v ...any) { fmt.Fprintf(&b, "%-16s %-5s %7s %8s %7s %7s %7s  %s\n", v...) }
	row("webhook", "state", "waiting", "oldest", "sent", "failed", "dropped", "address")
	for i := range all {
		x := &all[i]
		state, oldest := "on", "-"
		if x.OffSince != nil {
			state = "off"
		}
		if x.Waiting > 0 {
			oldest = about(x.Oldest)
		}
		row(cut(x.Name, 16), state, count(int64(x.Waiting)), oldest, count(x.Sent), count(x.Failed),
			count(x.Dropped), x.Address)
	}
	for i := range all {
		x := &all[i]
		if x.Why != "" {
			fmt.Fprintf(&b, "%s: %s\n", cut(x.Name, 16), x.Why)
		}
		if f := x.LastFailure; f != nil && (x.LastSuccess == nil || x.LastSuccess.At.Before(f.At)) {
			fmt.Fprintf(&b, "%s: %s at %s\n", cut(x.Name, 16), f.Why, f.At.Format(time.RFC3339))
		}
	}
	if len(all) == 0 {
		b.WriteString("no webhooks: see docs/webhooks.md\n")
	}
	return b.String()
}
