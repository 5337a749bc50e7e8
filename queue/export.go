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

// A savedJob is a job in the JSON form that ParseJob reads.
type savedJob struct {
	Key      string            `json:"key,omitempty"`
	OrderKey string            `json:"order_key,omitempty"`
	Tenant   string            `json:"tenant,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Cost     int64             `json:"cost,omitempty"`
	At       time.Time         `json:"at,omitzero"`
	MaxAge   string            `json:"max_age,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Text     string            `json:"text,omitempty"`
	Base64   string            `json:"base64,omitempty"`
}

// Export calls f for each job that is not finished, or for each dead job if dead is true, in the
// order in which they were put. Each line is a job in the form that ParseJob reads. Every node can
// export, even if no node hosts the queue, and the queue keeps running. Jobs that are delivered
// during the export may be included; jobs that are put during it may be missing. f must not keep
// line. If f returns an error, Export stops and returns it.
func (q *Queue) Export(ctx context.Context, dead bool, f func(line []byte) error) error {
	old, now := newReplay(), time.Now()
	// Read the notes first: a job whose outcome is noted later is then exported too, which is safe.
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
			line, err := saveJob(b, old, r, e.At, now)
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

// saveJob writes a job of a chunk as a JSON line. put is the time of the chunk; old has what is known of
// its attempts and changes.
func saveJob(b []byte, old *replay, r ref, put, now time.Time) ([]byte, error) {
	j, ok := parseJob(b)
	tried, changed := old.tries[r]
	if !ok {
		return nil, errChunk
	}
	s := savedJob{Key: j.Key, OrderKey: j.OrderKey, Tenant: j.Tenant, Priority: j.Priority, Cost: j.Cost,
		At: j.At, Headers: j.Headers}
	if j.MaxAge > 0 { // the remaining time
		since := put
		if tried.since > 0 {
			since = time.UnixMilli(tried.since)
		}
		if j.At.After(since) {
			since = j.At
		}
		s.MaxAge = max(j.MaxAge-max(0, now.Sub(since)), time.Millisecond).String()
	}
	if changed {
		if s.At = (time.Time{}); tried.at > 0 {
			s.At = time.UnixMilli(tried.at)
		}
	}
	if rank, ok := old.ranks[r]; ok {
		s.Priority = int(rank)
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
