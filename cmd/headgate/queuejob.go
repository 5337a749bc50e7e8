package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/queue"
)

// oneJob shows, cancels or changes one job. It reports false if verb and flags say nothing of it.
func (o *operator) oneJob(
	ctx context.Context, w io.Writer, verb string, words []string, f *queueFlags,
) (known bool, err error) {
	if len(words) != 2 {
		return false, nil
	}
	query := url.Values{}
	if f.key {
		query.Set("by", "key")
	}
	method, change := http.MethodGet, any(nil)
	switch {
	case verb == "job":
		if f.wait > 0 {
			query.Set("wait", f.wait.String())
		}
	case verb == "cancel":
		method, o.scope = http.MethodDelete, "write"
	case verb == "change" && (f.at != "" || f.priority >= 0):
		method, o.scope = http.MethodPatch, "write"
		to := map[string]any{}
		if f.at != "" {
			to["at"] = f.at
		}
		if f.priority >= 0 {
			to["priority"] = f.priority
		}
		change = to
	default:
		return false, nil
	}
	path := queuePath(words[0]) + "/jobs/" + url.PathEscape(words[1])
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var s queue.JobStatus
	if err := o.do(ctx, method, path, change, &s); err != nil {
		return true, err
	}
	fmt.Fprint(w, jobText(&s, time.Now()))
	return true, nil
}

// jobText formats a job: one line for its state, and one for each try.
func jobText(s *queue.JobStatus, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", s.ID, strings.ReplaceAll(s.State, "_", " "))
	if s.Behind != "" {
		fmt.Fprintf(&b, " behind %s of its order key", s.Behind)
	}
	switch {
	case s.State == queue.StateWaiting && !s.At.IsZero():
		fmt.Fprintf(&b, ", not before %s (in %s)", s.At.Format(time.RFC3339), about(max(0, s.At.Sub(now).Seconds())))
	case s.State == queue.StateWaiting && s.Position > 0:
		fmt.Fprintf(&b, ", number %s of its tenant", count(int64(s.Position)))
		if s.Expected != nil && *s.Expected >= 0 {
			fmt.Fprintf(&b, ", expected in %s", about(*s.Expected))
		}
	case !s.Since.IsZero():
		fmt.Fprintf(&b, " since %s", s.Since.Format(time.RFC3339))
	case !s.Ended.IsZero():
		fmt.Fprintf(&b, " at %s", s.Ended.Format(time.RFC3339))
	}
	b.WriteByte('\n')
	for _, t := range s.Tries {
		fmt.Fprintf(&b, "  %s  %-9s", t.At.Format(time.RFC3339), t.What)
		if t.Attempt > 0 {
			fmt.Fprintf(&b, "  attempt %d", t.Attempt)
		}
		if t.Status > 0 {
			fmt.Fprintf(&b, "  %d", t.Status)
		}
		if t.Reason != "" {
			fmt.Fprintf(&b, "  %q", t.Reason) // the target's words: no control characters
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// deadJobs lists, redrives or purges dead jobs, or purges the waiting ones, or shows a tenant. It reports
// false if verb and flags say nothing of it.
func (o *operator) deadJobs(
	ctx context.Context, w io.Writer, verb string, words []string, f *queueFlags,
) (known bool, err error) {
	if len(words) == 0 {
		return false, nil
	}
	path := queuePath(words[0])
	which, some, err := f.which(words[1:], time.Now())
	if err != nil {
		return true, err
	}
	switch n := len(words); {
	case verb == "tenant" && n == 2 && f.count > 0:
		return true, o.showTenant(ctx, w, path, words[1], min(f.count, 1000))
	case verb == "dead" && f.count > 0:
		return true, o.listDead(ctx, w, words[0], f.count, which)
	case verb == "redrive":
		return true, o.counted(ctx, w, http.MethodPost, path+"/redrive?"+which.Encode())
	case verb == "purge" && n == 1 && !f.dead && !some:
		return true, o.counted(ctx, w, http.MethodDelete, path+"/jobs")
	case verb == "purge" && f.dead:
		return true, o.counted(ctx, w, http.MethodDelete, path+"/dead?"+which.Encode())
	}
	return false, nil
}

// which returns the parameters that name some dead jobs.
func (f *queueFlags) which(ids []string, now time.Time) (which url.Values, some bool, err error) {
	which = url.Values{}
	if len(ids) > 0 {
		which["id"] = ids
	}
	if f.tenant != nil {
		which.Set("tenant", *f.tenant)
	}
	for name, n := range map[string]int{"status": f.status, "most": f.most} {
		if n != 0 {
			which.Set(name, strconv.Itoa(n))
		}
	}
	for name, text := range map[string]string{"since": f.since, "before": f.before} {
		if text == "" {
			continue
		}
		at, bad := time.Parse(time.RFC3339, text)
		if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
			at, bad = now.Add(-ago), nil
		}
		if bad != nil {
			return nil, false, usageFault(fmt.Sprintf("--%s: %.64q is no time", name, text),
				"write 2026-12-24T18:00:00Z, or how long ago: 10m")
		}
		which.Set(name, at.UTC().Format(time.RFC3339Nano))
	}
	return which, len(which) > 0, nil
}

// showTenant prints the state of a tenant and its next jobs.
func (o *operator) showTenant(ctx context.Context, w io.Writer, path, name string, n int) error {
	var s queue.TenantStatus
	path += "/tenants/" + url.PathEscape(name) + "?count=" + strconv.Itoa(n)
	if err := o.do(ctx, http.MethodGet, path, nil, &s); err != nil {
		return err
	}
	state := "runs"
	if s.Paused {
		state = "paused"
	}
	fmt.Fprintf(w, "%q: %s, weight %d, %s in line, %s dead\n", s.Tenant, state, s.Weight,
		count(int64(s.InLine)), count(int64(s.Dead)))
	for i := range s.Jobs {
		text, _, _ := strings.Cut(jobText(&s.Jobs[i], time.Now()), "\n")
		fmt.Fprintf(w, "%s  %q\n", text, s.Jobs[i].Key)
	}
	return nil
}

// claims claims jobs, or says what has become of them. It reports false if verb and flags say nothing of it.
func (o *operator) claims(
	ctx context.Context, w io.Writer, verb string, words []string, f *queueFlags,
) (known bool, err error) {
	if len(words) == 0 {
		return false, nil
	}
	path, body := queuePath(words[0])+"/"+verb, map[string]any{}
	span := func(key string, d time.Duration) {
		if d != 0 {
			body[key] = d.String()
		}
	}
	o.scope = "claim:" + words[0]
	span("lease", f.lease)
	switch n := len(words); {
	case verb == "claim" && n == 1:
		body["max"], body["worker"] = f.max, f.worker
		span("wait", f.wait)
		var got struct {
			Jobs []json.RawMessage `json:"jobs"`
		}
		if err := o.do(ctx, http.MethodPost, path, body, &got); err != nil {
			return true, err
		}
		for _, j := range got.Jobs {
			fmt.Fprintf(w, "%s\n", j)
		}
		return true, nil
	case verb == "nack" && n > 1:
		body["why"], body["dead"], body["untried"] = f.why, f.dead, f.untried
		span("delay", f.delay)
	case (verb == "ack" || verb == "extend") && n > 1:
	default:
		return false, nil
	}
	receipts := words[1:]
	for i, word := range o.command { // it is a part of messages, and those get into logs
		if strings.Contains(word, ".") && slices.Contains(receipts, word) {
			o.command[i] = "RECEIPT"
		}
	}
	if len(receipts) == 1 && receipts[0] == "-" { // other users see the words of a command
		b, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
		if err != nil {
			return true, err
		}
		receipts = strings.Fields(string(b))
	}
	body["receipts"] = receipts
	var got struct {
		Results []struct {
			OK              bool
			ID, Code, State string
		} `json:"results"`
	}
	if err := o.do(ctx, http.MethodPost, path, body, &got); err != nil {
		return true, err
	}
	bad := 0
	for _, r := range got.Results {
		if !r.OK {
			bad++
			fmt.Fprintf(w, "%s: %s, the job is %s\n", cmp.Or(r.ID, "?"), r.Code, cmp.Or(r.State, "unknown"))
		}
	}
	fmt.Fprintf(w, "%s: %d jobs\n", verb, len(got.Results)-bad)
	if bad > 0 {
		return true, &hint.Error{Text: fmt.Sprintf("%d receipts do not hold their jobs any more", bad),
			Do: "claim again, with a longer --lease, or extend the lease in time"}
	}
	return true, nil
}
