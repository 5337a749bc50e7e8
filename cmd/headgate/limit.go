package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/status"
)

// A shownLimit is a limit as the API returns it.
type shownLimit struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Amount    int64  `json:"amount"`
	Unit      string `json:"unit"`
	Window    string `json:"window"`
	Align     string `json:"align"`
	Burst     int64  `json:"burst"`
	Soft      bool   `json:"soft,omitempty"`
	Shadow    bool   `json:"shadow"`
	Source    string `json:"source"`

	Auto *shownAuto `json:"auto,omitempty"`
}

// A shownAuto is how the amount of a limit is found.
type shownAuto struct {
	Mode  string             `json:"mode"`
	Min   int64              `json:"min"`
	Max   int64              `json:"max"`
	Found *status.AutoAmount `json:"found,omitempty"`
}

// String returns it as a part of a line.
func (a *shownAuto) String() string {
	s := fmt.Sprintf(", found from %d to %d", a.Min, a.Max)
	if a.Mode != limit.AutoOn {
		s += ", " + a.Mode
	}
	if f := a.Found; f != nil && a.Mode == limit.AutoShadow {
		s += fmt.Sprintf(", it would be %d", f.Amount)
	}
	return s
}

// String returns the limit as one line.
func (l *shownLimit) String() string {
	s := fmt.Sprintf("%d %s", l.Amount, l.Unit)
	switch {
	case l.Window != "":
		s += " in " + l.Window
	case l.Align != "" && l.Algorithm == limit.FixedWindow.String():
		s += " in a calendar " + l.Align
	default:
		s += " at once"
	}
	if l.Auto != nil {
		s += l.Auto.String()
	}
	if l.Burst > 0 {
		s += fmt.Sprintf(", bursts of %d", l.Burst)
	}
	switch {
	case l.Soft:
		s += ", soft"
	case l.Shadow:
		s += ", in shadow mode"
	}
	return s + " (" + l.Algorithm + ")"
}

func (l *shownLimit) atOnce() bool { return l.Algorithm == limit.Concurrency.String() }

// limitCommand shows limits and the usage of their keys.
func limitCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, words, err := operatorFlags(flag.NewFlagSet("limit", flag.ContinueOnError), "limit", args)
	if err != nil {
		return err
	}
	asked := func(word string, n int) bool { return len(words) == n && words[0] == word }
	switch {
	case asked("list", 1):
		err = o.listLimits(ctx, stdout)
	case asked("keys", 2):
		err = o.listLimitKeys(ctx, stdout, words[1])
	case asked("key", 3):
		err = o.explainLimitKey(ctx, stdout, words[1], words[2], "")
	case asked("key", 4):
		err = o.explainLimitKey(ctx, stdout, words[1], words[2], words[3])
	case len(words) > 2 && words[0] == "set":
		err = o.setLimit(ctx, stdout, words[1], words[2:])
	case asked("reset", 3):
		if err = o.do(ctx, http.MethodDelete, limitKeyPath(words[1], words[2]), nil, nil); err == nil {
			fmt.Fprintf(stdout, "forgotten: %q has used nothing of %s\n", words[2], words[1])
		}
	case len(words) > 2 && words[0] == "create":
		err = o.createLimit(ctx, stdout, words[1], words[2:])
	case asked("remove", 2):
		err = o.removeLimit(ctx, stdout, words[1])
	default:
		return usageFault("limit: what is to be done?",
			"write headgate limit list, limit keys LIMIT, limit key LIMIT KEY, limit set LIMIT KEY=VALUE, "+
				"limit reset LIMIT KEY, limit create NAME KEY=VALUE or limit remove NAME")
	}
	return err
}

// setLimit changes a limit.
func (o *operator) setLimit(ctx context.Context, w io.Writer, limit string, changes []string) error {
	pairs, err := limitPairs(changes)
	if err != nil {
		return err
	}
	var got shownLimit
	if err := o.do(ctx, http.MethodPatch, "/v1/limits/"+url.PathEscape(limit), pairs, &got); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %v", got.Name, &got)
	if got.Source == "file" {
		fmt.Fprint(w, ", until the file says something else of it")
	}
	fmt.Fprintln(w)
	return nil
}

// limitPairs parses words such as amount=200.
func limitPairs(words []string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, c := range words {
		at := max(0, strings.LastIndex(c, "=")) // keys of callers may contain one, values do not
		key, value, ok := c[:at], strings.TrimPrefix(c[at:], "="), at > 0
		if _, twice := pairs[key]; !ok || twice {
			return nil, &hint.Error{Text: c + " is no change", Do: "write each key once, as amount=200"}
		}
		pairs[key] = value
	}
	return pairs, nil
}

// limitKeyPath returns the path of a key. It escapes . and .., which would otherwise change the
// path.
func limitKeyPath(limit, key string) string {
	path := url.PathEscape(key)
	if key == "." || key == ".." {
		path = strings.ReplaceAll(key, ".", "%2E")
	}
	return "/v1/limits/" + url.PathEscape(limit) + "/keys/" + path
}

func (o *operator) listLimits(ctx context.Context, w io.Writer) error {
	var got struct {
		Limits []shownLimit `json:"limits"`
	}
	if err := o.do(ctx, http.MethodGet, "/v1/limits", nil, &got); err != nil {
		return err
	}
	for i := range got.Limits {
		l := &got.Limits[i]
		fmt.Fprintf(w, "%-16s  %-5s  %v\n", l.Name, l.Source, l)
		if l.Auto != nil && l.Auto.Found != nil {
			fmt.Fprintf(w, "%-16s  %-5s  %s\n", "", "", l.Auto.Found.Reason)
		}
	}
	if len(got.Limits) == 0 {
		fmt.Fprintln(w, "no limits: see Limits in docs/configuration.md")
	}
	return nil
}

// listLimitKeys prints the keys of a limit, page after page.
func (o *operator) listLimitKeys(ctx context.Context, w io.Writer, limit string) error {
	for after := ""; ; {
		var got struct {
			Keys []struct {
				Key   string  `json:"key"`
				Used  int64   `json:"used"`
				Limit int64   `json:"limit"`
				Reset float64 `json:"reset_seconds"`
			} `json:"keys"`
			Next string `json:"next"`
		}
		path := "/v1/limits/" + url.PathEscape(limit) + "/keys?count=1000&after=" + url.QueryEscape(after)
		if err := o.do(ctx, http.MethodGet, path, nil, &got); err != nil {
			return err
		}
		for _, k := range got.Keys {
			fmt.Fprintf(w, "%8d of %d  whole again in %v  %q\n", k.Used, k.Limit, inSeconds(k.Reset), k.Key)
		}
		if after = got.Next; after == "" {
			return nil
		}
	}
}

// explainLimitKey prints whether a call with this key would pass, and when.
func (o *operator) explainLimitKey(ctx context.Context, w io.Writer, limit, key, cost string) error {
	var got struct {
		Allowed   bool       `json:"allowed"`
		Limit     int64      `json:"limit"`
		Remaining int64      `json:"remaining"`
		Reset     float64    `json:"reset_seconds"`
		Retry     *float64   `json:"retry_after_seconds"`
		Exceeded  bool       `json:"exceeded"`
		Shared    bool       `json:"shared"`
		Alone     bool       `json:"unreachable"`
		Rule      shownLimit `json:"rule"`
	}
	path, call := limitKeyPath(limit, key), "the next call"
	if cost != "" {
		path, call = path+"?cost="+url.QueryEscape(cost), "a call that costs "+cost
	}
	if err := o.do(ctx, http.MethodGet, path, nil, &got); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %v\n%q has %d of %d left", limit, &got.Rule, key, got.Remaining, got.Limit)
	switch {
	case got.Exceeded && got.Rule.Soft:
		fmt.Fprintf(w, "; %s passes, and is marked: the limit is soft", call)
	case got.Exceeded:
		fmt.Fprintf(w, "; shadow mode lets %s pass", call)
	case got.Allowed:
		fmt.Fprintf(w, "; %s passes", call)
	case got.Retry == nil && got.Limit == 0:
		fmt.Fprint(w, "; it lets nothing through")
	case got.Retry == nil:
		fmt.Fprintf(w, "; %s never passes", call)
	case got.Rule.atOnce():
		fmt.Fprintf(w, "; %s passes when one that is under way ends", call)
	default:
		fmt.Fprintf(w, "; %s passes in %v", call, inSeconds(*got.Retry))
	}
	if got.Reset > 0 {
		fmt.Fprintf(w, "; all of it is back in %v", inSeconds(got.Reset))
	}
	fmt.Fprintln(w)
	if got.Alone {
		fmt.Fprintln(w, "the node that counts this key does not answer: on_unreachable of the limit has decided")
	}
	if got.Shared {
		fmt.Fprintln(w, "there are more keys than max_keys: this one is counted together with all others beyond them")
	}
	return nil
}

// inSeconds rounds up, so that a caller that waits this long is not too early.
func inSeconds(s float64) time.Duration {
	const tenth = 100 * time.Millisecond
	return time.Duration(math.Ceil(s*float64(time.Second/tenth))) * tenth
}

// createLimit creates a limit, or replaces one created before.
func (o *operator) createLimit(ctx context.Context, w io.Writer, name string, words []string) error {
	rule, err := limitRule(words)
	if err != nil {
		return err
	}
	var got shownLimit
	if err := o.do(ctx, http.MethodPut, "/v1/limits/"+url.PathEscape(name), rule, &got); err != nil {
		return err
	}
	fmt.Fprintf(w, "made: %s: %v\n", got.Name, &got)
	return nil
}

// limitRule returns the settings of a limit as JSON. It does not check the values; the API does.
func limitRule(words []string) (map[string]any, error) {
	pairs, err := limitPairs(words)
	if err != nil {
		return nil, err
	}
	rule, amounts := map[string]any{}, map[string]map[string]any{"overrides": {}, "plans": {}}
	for key, value := range pairs {
		var v any = value
		switch {
		case isNumber(value):
			v = json.Number(value)
		case value == "true", value == "false":
			v = value == "true"
		}
		group, whose, _ := strings.Cut(key, ".")
		switch {
		case whose != "" && amounts[group] != nil:
			amounts[group][whose] = v
		case key == "key":
			rule[key] = strings.Split(value, ",") // no part of a key contains one
		default:
			rule[key] = v
		}
	}
	for group, all := range amounts {
		if len(all) > 0 {
			rule[group] = all
		}
	}
	return rule, nil
}

// isNumber reports whether a word is a JSON number.
func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && json.Valid([]byte(s))
}

// removeLimit removes a limit that was created by the API.
func (o *operator) removeLimit(ctx context.Context, w io.Writer, name string) error {
	var got struct {
		Stays bool `json:"in_file"`
	}
	if err := o.do(ctx, http.MethodDelete, "/v1/limits/"+url.PathEscape(name), nil, &got); err != nil {
		return err
	}
	fmt.Fprintf(w, "removed: %s\n", name)
	if got.Stays {
		fmt.Fprintln(w, "the configuration has one of that name, which stays")
	}
	return nil
}
