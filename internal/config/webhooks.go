package config

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/suggest"
	"github.com/headgate/headgate/internal/webhook"
)

// Bounds of webhooks. Chosen: each webhook is two streams of the engine, and one delivery at a
// time.
const (
	maxWebhooks     = 16
	maxWebhookName  = 56 // its queue has a longer name
	maxWebhookRooms = 1000
	maxSigners      = 4 // the same as for a target
)

func webhookFields(w *Webhook) []field {
	secrets := some(list("secret_files", &w.SecretFiles, cleanFile),
		"is empty: nobody could tell a message from a forged one",
		"name a file: echo whsec_$(openssl rand -base64 32) makes what is in it")
	secrets.example = "[/etc/headgate/webhook.secret]"
	const nothing = "is empty: nothing would ever be sent"
	return []field{
		secrets,
		required("name", "ops", text(&w.Name, cleanWebhookName)),
		required("url", "https://ops.example.com/headgate", raw(&w.URL, cleanWebhookURL)),
		some(list("on", &w.On, cleanKind, schema.OneOf(webhook.Kinds()...)), nothing, "leave the key out for all"),
		some(list("rooms", &w.Rooms, cleanName), nothing, "leave the key out for all"),
		one("dashboard", raw(&w.Dashboard, cleanDashboard)),
	}
}

// some makes the field of a list that must not be empty.
func some(f field, problem, hint string) field {
	read := f.read
	f.read = func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			d.fault(key, n, &mistake{problem: problem, hint: hint})
			return
		}
		read(d, key, n)
	}
	return f
}

func readWebhooks(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > maxWebhooks {
			d.fault(key, n, wrong("let one receiver hand messages on",
				"has %d webhooks, more than %d", len(n.Content), maxWebhooks))
			return
		}
		for key, item := range d.items(key, n) {
			var w Webhook
			d.mapping(key, item, webhookFields(&w))
			c.Webhooks = append(c.Webhooks, w)
		}
	}
}

// checkWebhooks checks the webhooks against each other and against the queues.
func checkWebhooks(d *decoder, c *Config) {
	named := map[string]int{}
	for i := range c.Webhooks {
		w, k := &c.Webhooks[i], "webhooks["+strconv.Itoa(i)+"]."
		if j, twice := named[w.Name]; twice && w.Name != "" {
			d.clash(wrong("give each webhook a name of its own",
				"%s is already the name of webhooks[%d]", quote(w.Name), j), k+"name")
		}
		named[w.Name] = i
		if n := len(w.SecretFiles); n > maxSigners && d.good(k+"secret_files") {
			d.clash(wrong("a change of the secret needs two", "has %d files, more than %d", n, maxSigners),
				k+"secret_files")
		}
		if len(w.Rooms) > maxWebhookRooms && d.good(k+"rooms") {
			d.clash(wrong("leave the key out for all", "has %d rooms, more than %d", len(w.Rooms),
				maxWebhookRooms), k+"rooms")
		}
		if len(w.On) == 0 {
			w.On = webhook.Kinds()
		}
	}
	for i := range c.Queues {
		if k := "queues[" + strconv.Itoa(i) + "].name"; d.good(k) &&
			strings.HasPrefix(c.Queues[i].Name, WebhookQueue) {
			d.clash(wrong("give it another name", "%s begins with %s, which is of webhooks",
				quote(c.Queues[i].Name), WebhookQueue), k)
		}
	}
}

func cleanWebhookName(s string) (string, *mistake) {
	if len(s) > maxWebhookName {
		return "", wrong("use 1 to 56 of the letters A-Z and a-z, digits, _ and -",
			"%s is too long", quote(s))
	}
	return cleanName(s)
}

// cleanWebhookURL checks the URL of a webhook. Its messages differ from those of cleanTarget,
// because a webhook has no headers.
func cleanWebhookURL(s string) (string, *mistake) {
	s, m := cleanTarget(s)
	if m != nil {
		m.hint = "write scheme, host and path alone, such as https://ops.example.com/headgate"
	}
	return s, m
}

func cleanKind(s string) (string, *mistake) {
	kinds := webhook.Kinds()
	if slices.Contains(kinds, s) {
		return s, nil
	}
	hint := "the kinds are " + strings.Join(kinds, ", ")
	if meant := suggest.Nearest(s, kinds); meant != "" {
		hint = "did you mean " + meant + "? " + hint
	}
	return "", wrong(hint, "%s is no kind of message", quote(s))
}

// cleanDashboard checks the address of the dashboard, to which the name of a view is added.
func cleanDashboard(s string) (string, *mistake) {
	s, m := cleanTarget(s)
	if m != nil || strings.ContainsAny(s, "?") {
		return "", wrong("write its address alone, such as https://ops.example.com/dashboard/",
			"is not the address of the dashboard")
	}
	return s, nil
}
