package crowd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Sample is one reading of the room through the admin address.
type Sample struct {
	At      time.Time `json:"-"` // when the answer arrived
	Active  int       `json:"active_users"`
	Waiting int       `json:"waiting_users"`
	Called  int       `json:"called"`
	New     int       `json:"new_users_last_minute"`
	// These are the limits as headgate reports them.
	TotalLimit int `json:"total_active_users"`
	NewLimit   int `json:"new_users_per_minute"`
	Totals     struct {
		Admitted int `json:"admitted"`
	} `json:"totals"`
}

// A Watch holds the samples of the only room of an admin address.
type Watch struct {
	Samples []Sample
	Failed  int // samples without an answer
}

// sampleEvery is the interval of samples.
const sampleEvery = 100 * time.Millisecond

// WatchRoom samples the room each 100 ms until ctx is done.
func WatchRoom(ctx context.Context, admin string) *Watch {
	w := &Watch{}
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		s, err := look(ctx, admin)
		switch {
		case err == nil:
			w.Samples = append(w.Samples, s)
		case ctx.Err() == nil:
			w.Failed++
		}
		select {
		case <-ctx.Done():
			return w
		case <-t.C:
		}
	}
}

func look(ctx context.Context, admin string) (Sample, error) {
	var body struct {
		Rooms []Sample `json:"rooms"`
	}
	text, err := Get(ctx, admin+"/v1/rooms")
	if err != nil {
		return Sample{}, err
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		return Sample{}, fmt.Errorf("read rooms: %w", err)
	}
	if len(body.Rooms) != 1 {
		return Sample{}, fmt.Errorf("read rooms: %d rooms, want one", len(body.Rooms))
	}
	body.Rooms[0].At = time.Now()
	return body.Rooms[0], nil
}

func Get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return "", fmt.Errorf("get %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get %s: %s: %.200s", url, resp.Status, text)
	}
	return string(text), nil
}

// MostActive returns the largest number of active users, including called ones: a called slot is
// taken.
func (w *Watch) MostActive() int {
	most := 0
	for _, s := range w.Samples {
		most = max(most, s.Active+s.Called)
	}
	return most
}

// MostNew returns the largest number of new users in a minute.
func (w *Watch) MostNew() int {
	most := 0
	for _, s := range w.Samples {
		most = max(most, s.New)
	}
	return most
}

// FirstWaiting returns the first sample in which somebody waits.
func (w *Watch) FirstWaiting() (Sample, bool) {
	for _, s := range w.Samples {
		if s.Waiting > 0 {
			return s, true
		}
	}
	return Sample{}, false
}

// Shortfall returns how far the fuller of the two limits was below its maximum: the one that makes
// people wait.
func (s *Sample) Shortfall() int {
	return min(s.TotalLimit-s.Active-s.Called, s.NewLimit-s.New-s.Called)
}

// Busy returns the spans in which somebody waited all the time, as far as the samples show. A span
// begins at the second sample with a line, because visitors admitted just before the line formed
// are then at the origin. A gap of a second between two samples ends it.
func (w *Watch) Busy() []Span {
	var out []Span
	run := 0 // consecutive samples in which somebody waits
	for i, s := range w.Samples {
		if s.Waiting == 0 {
			run = 0
			continue
		}
		if run > 0 && s.At.Sub(w.Samples[i-1].At) > time.Second {
			run = 0
		}
		run++
		switch {
		case run == 2:
			out = append(out, Span{s.At, s.At})
		case run > 2:
			out[len(out)-1].To = s.At
		}
	}
	return out
}

// Metric returns the sum of a counter in a Prometheus text over all its labels; false when it is
// missing.
func Metric(text, name string) (float64, bool) {
	sum, found := 0.0, false
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		rest, ok := strings.CutPrefix(sc.Text(), name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			sum, found = sum+v, true
		}
	}
	return sum, found
}

// keptOf returns the totals of the only room that headgate has stored for the last hour.
func keptOf(ctx context.Context, admin string) (map[string]float64, error) {
	text, err := Get(ctx, admin+"/v1/analytics?room=main&from=-1h&step=1m")
	if err != nil {
		return nil, err
	}
	var body struct{ Total map[string]any }
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		return nil, fmt.Errorf("read analytics: %w", err)
	}
	all := map[string]float64{}
	for name, v := range body.Total {
		if n, ok := v.(float64); ok {
			all[name] = n
		}
	}
	return all, nil
}
