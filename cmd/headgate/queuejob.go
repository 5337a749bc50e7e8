package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

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
