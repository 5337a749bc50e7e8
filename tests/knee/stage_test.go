//go:build crowd

package knee

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/loopback"
	process "github.com/headgate/headgate/tests/crowd"
)

// each is the time between two looks: that of two samples of headgate.
const each = 5 * time.Second

// A room is what headgate says of it.
type room struct {
	Inside  int64 `json:"active_users"`
	Waiting int64 `json:"waiting_users"`
	Limit   int64 `json:"total_active_users"`
	Auto    struct {
		Knee   float64 `json:"knee_requests_per_second"`
		P95    float64 `json:"p95_of_target"`
		Reason string  `json:"reason"`
	} `json:"auto"`
}

// A row is one look.
type row struct {
	at time.Duration // since the crowd came
	room
	took     seen // by the origin's answers since the last look
	capacity int
}

// A stage is an origin, headgate in front, and a crowd.
type stage struct {
	t      *testing.T
	origin *origin
	bin    string
	config string
	public string
	admin  string
	gate   *process.Process
	began  time.Time
	tick   *time.Ticker
	rows   []row
	leave  func() *crowd.Result
}

// open starts headgate with the limits in YAML.
func open(t *testing.T, o *origin, limits string) *stage {
	s := &stage{t: t, origin: o, bin: process.Build(t), public: loopback.Free(t), admin: loopback.Free(t)}
	dir := t.TempDir()
	s.config = filepath.Join(dir, "headgate.yaml")
	text := fmt.Sprintf("listen: %s\nadmin_listen: %s\ndata: %s\ntrusted_proxies: [127.0.0.0/8]\nrooms:\n"+
		"  - {name: shop, origin: %q, session_duration: 30s, %s,\n"+
		"     origin_target: {p95: %v, errors: 1%%}}\n",
		s.public, s.admin, filepath.Join(dir, "data"), o.url, limits, target)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	return s
}

func (s *stage) start() {
	s.gate = process.Start(s.t, s.bin, "run", "--config", s.config)
	process.AwaitReady(s.t, "http://"+s.admin)
}

// come lets visitors come: so many a second, who stay inside for a time. Leave ends them.
func (s *stage) come(perSecond float64, stayMin, stayMax time.Duration) {
	const most = 20 * time.Minute
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan *crowd.Result, 1)
	go func() {
		r, err := crowd.Run(ctx, crowd.Config{
			URL: "http://" + s.public + "/", N: int(perSecond * most.Seconds()), Arrive: most, Seed: 24,
			Transport: newBrowser(), SessionMin: stayMin, SessionMax: stayMax,
			ThinkMin: thinkMin, ThinkMax: thinkMax, LeavePath: leave, RevokeShare: 1,
		}, nil)
		if err != nil {
			s.t.Error(err)
		}
		ended <- r
	}()
	s.began, s.tick = time.Now(), time.NewTicker(each)
	s.leave = func() *crowd.Result { stop(); return <-ended }
}

// see returns what headgate says of the room.
func (s *stage) see() (x room) {
	s.t.Helper()
	text, err := process.Get(s.t.Context(), "http://"+s.admin+"/v1/rooms/shop")
	if err == nil {
		err = json.Unmarshal([]byte(text), &x)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

// look waits for the next look.
func (s *stage) look() row {
	s.t.Helper()
	<-s.tick.C
	r := row{at: time.Since(s.began), room: s.see(), took: s.origin.look(), capacity: s.origin.capacity}
	s.rows = append(s.rows, r)
	s.t.Logf("%4.0f s: limit %d, %d inside, %d wait, %d connections, p95 %.2f (origin %.2f), knee %.0f/s, %s",
		r.at.Seconds(), r.Limit, r.Inside, r.Waiting, r.capacity, r.Auto.P95, r.took.p95(), r.Auto.Knee,
		r.Auto.Reason)
	return r
}

// until looks until the limit has been from low to high for some looks in a row.
func (s *stage) until(what string, low, high float64, inRow, most int) {
	s.t.Helper()
	good := 0
	for n := 1; n <= most; n++ {
		if r := s.look(); float64(r.Limit) < low || float64(r.Limit) > high {
			good = 0
		} else if good++; good == inRow {
			s.t.Logf("%s: after %d looks", what, n)
			return
		}
	}
	s.t.Errorf("%s: not from %.0f to %.0f in %d looks", what, low, high, most)
}

// hold looks for some looks, and judges what the origin has seen in them: at most one in twenty is slower
// than the target. It returns the mean of the limit.
func (s *stage) hold(what string, looks int) (limit float64) {
	s.t.Helper()
	all, slow := 0, 0
	for range looks {
		r := s.look()
		all, slow = all+len(r.took), slow+r.took.slow()
		limit += float64(r.Limit) / float64(looks)
	}
	s.t.Logf("%s: %d of %d answers above the target; limit %.0f", what, slow, all, limit)
	if 20*slow > all {
		s.t.Errorf("%s: %d of %d answers were above the target", what, slow, all)
	}
	return limit
}
