package queue

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"
)

// TestWhatIsSavedCanBePutAgain exports a queue with jobs in all states and puts the lines into
// another queue.
func TestWhatIsSavedCanBePutAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.MinBackoff, c.MaxBackoff = time.Hour, time.Hour })
	b.target.answer = func(j *Job) Outcome {
		switch j.Key {
		case "dies":
			return Outcome{Err: errors.New("no")}
		case "later":
			return Outcome{Err: errors.New("no"), Retry: true}
		}
		return Outcome{}
	}
	b.put(Job{Key: "purged", At: time.Now().Add(time.Hour), Body: []byte("x")})
	until(t, "known", func() bool { return b.hosts().status().Later == 1 })
	if _, err := b.q.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.put(Job{Key: "done"}, Job{Key: "dies", Body: []byte("dead\n")},
		Job{Key: "later", OrderKey: "o", MaxAge: time.Hour, Body: []byte("\"<tried>\"\n")})
	until(t, "all tried", func() bool {
		s := b.status()
		return s.Totals.Delivered == 1 && s.Dead == 1 && s.Totals.Retried == 1
	})
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole := Job{Key: "whole", Tenant: "acme", Priority: 7, Cost: 3, At: time.UnixMilli(2e12),
		Headers: map[string]string{"X-A": "b", "Content-Type": "application/json"}, Body: []byte{0, 255, 1}}
	b.put(whole)
	saved := func(dead bool) (keys []string, jobs map[string]Job) {
		jobs = map[string]Job{}
		if err := b.q.Export(t.Context(), dead, func(line []byte) error {
			j, err := ParseJob(line)
			keys, jobs[j.Key] = append(keys, j.Key), j
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return keys, jobs
	}
	var keys []string
	var jobs map[string]Job
	until(t, "the notes are written", func() bool {
		keys, jobs = saved(false)
		return slices.Equal(keys, []string{"later", "whole"})
	})
	got := jobs["whole"]
	if got.Tenant != "acme" || got.Priority != 7 || got.Cost != 3 || !got.At.Equal(whole.At) ||
		string(got.Body) != string(whole.Body) || !maps.Equal(got.Headers, whole.Headers) {
		t.Errorf("saved %+v, want %+v", got, whole)
	}
	got = jobs["later"]
	if string(got.Body) != "\"<tried>\"\n" || got.OrderKey != "o" || time.Until(got.At) < 20*time.Minute ||
		got.MaxAge >= time.Hour || got.MaxAge < 59*time.Minute {
		t.Errorf("one that was tried: %+v", got)
	}
	if keys, jobs = saved(true); !slices.Equal(keys, []string{"dies"}) ||
		string(jobs["dies"].Body) != "dead\n" || !jobs["dies"].At.IsZero() {
		t.Errorf("dead are %v", jobs)
	}
}
