package queue

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/store"
)

// A savedJob is a job as ParseJob reads it.
type savedJob struct {
	Key      string            `json:"key,omitempty"`
	Tenant   string            `json:"tenant,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Cost     int64             `json:"cost,omitempty"`
	At       time.Time         `json:"at,omitzero"`
	MaxAge   string            `json:"max_age,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Text     string            `json:"text,omitempty"`
	Base64   string            `json:"base64,omitempty"`
}

// Save calls f with each job that is not done with, or with each that is dead, as a line that
// ParseJob reads, in the order in which they were put. Any node can, also while nobody hosts
// the queue, and the queue goes on. What is delivered meanwhile may be among them, and what is
// put meanwhile may not. f must not keep the line; its error ends Save.
func (q *Queue) Export(ctx context.Context, dead bool, f func(line []byte) error) error {
	old, now := newReplay(), time.Now()
	// The notes come first: what they do not say yet of a job only means that it is saved too.
	_, err := q.notes.ReadAll(ctx, func(e store.Entry) error {
		notes, err := parseNotes(e.Data)
		for i := range notes {
			old.note(&notes[i])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the notes: %w", err)
	}
	_, err = q.jobs.ReadAll(ctx, func(e store.Entry) error {
		jobs, err := parseChunk(e.Data)
		for i, b := range jobs {
			r := refOf(e.Seq, i)
			if _, isDead := old.dead[r]; old.gone(r) || isDead != dead {
				continue
			}
			line, err := saveJob(b, old.tries[r], e.At, now)
			if err == nil {
				err = f(line)
			}
			if err != nil {
				return fmt.Errorf("job %v: %w", r, err)
			}
		}
		return err
	})
	return err
}

// saveJob writes a job of a chunk of that time as a line. tried is what is known of attempts.
func saveJob(b []byte, tried note, put, now time.Time) ([]byte, error) {
	j, ok := parseJob(b)
	if !ok {
		return nil, errChunk
	}
	s := savedJob{Key: j.Key, Tenant: j.Tenant, Priority: j.Priority, Cost: j.Cost, At: j.At,
		Headers: j.Headers}
	if j.MaxAge > 0 { // what is left of it
		since := put
		if tried.since > 0 {
			since = time.UnixMilli(tried.since)
		}
		if j.At.After(since) {
			since = j.At
		}
		s.MaxAge = max(j.MaxAge-max(0, now.Sub(since)), time.Millisecond).String()
	}
	if tried.at > 0 && tried.at > s.At.UnixMilli() {
		s.At = time.UnixMilli(tried.at)
	}
	s.Text = string(j.Body)
	line, err := encodeLine(&s)
	if err != nil || !utf8.Valid(j.Body) || len(line) > MaxLine {
		s.Text, s.Base64 = "", base64.StdEncoding.EncodeToString(j.Body)
		line, err = encodeLine(&s)
	}
	return line, err
}

func encodeLine(s *savedJob) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b) // ends the line
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return b.Bytes(), err
}
