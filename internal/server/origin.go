package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/internal/promql"
	"github.com/headgate/headgate/internal/proxy"
	"github.com/headgate/headgate/internal/signals"
)

// originName is the name under which nodes tell each other what a monitor has reported.
const originName = "origin"

// An originState is what probes and monitors say about the origin of a room.
type originState struct {
	set func(up bool)

	mu       sync.Mutex
	silent   bool      // no connection, or no answer
	reported time.Time // a monitor has reported it down until then
	lapse    *time.Timer
}

// probed notes what requests and probes show.
func (o *originState) probed(up bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent = !up
	o.apply()
}

// report notes what a monitor says. Its "down" lapses, so that a monitor that dies holds nobody back
// for ever.
func (o *originState) report(up bool, lasts time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reported = time.Time{}
	if !up {
		o.reported = time.Now().Add(lasts)
		if o.lapse == nil {
			o.lapse = time.AfterFunc(lasts, func() {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.apply()
			})
		} else {
			o.lapse.Reset(lasts)
		}
	}
	o.apply()
}

func (o *originState) apply() { o.set(!o.silent && !time.Now().Before(o.reported)) }

// An originReport is what nodes tell each other.
type originReport struct {
	Room    string `json:"room"`
	Up      bool   `json:"up"`
	Seconds int    `json:"seconds"`
}

// ReportOrigin implements api.Process. Other nodes of the data center learn of it by a message that
// may be lost: monitors report again and again.
func (s *Server) ReportOrigin(room string, up bool, lasts time.Duration) error {
	x := originReport{room, up, int(lasts / time.Second)}
	if !s.takeReport(&x) {
		return api.ErrNoRoom
	}
	if s.node.Bus == nil {
		return nil
	}
	msg, err := json.Marshal(&x)
	if err == nil {
		err = s.node.Bus.Publish(originName, msg)
	}
	if err != nil {
		return fmt.Errorf("tell other nodes: %w", err)
	}
	return nil
}

func (s *Server) takeReport(x *originReport) bool {
	g := s.set.Load().find(x.Room)
	if g == nil {
		return false
	}
	lasts := time.Duration(min(max(x.Seconds, 1), int(api.MostReport/time.Second))) * time.Second
	g.state.report(x.Up, lasts)
	return true
}

// hearReports takes the reports that other nodes have received.
func (s *Server) hearReports(ctx context.Context) error {
	if s.node.Bus == nil {
		return nil
	}
	stop, err := s.node.Bus.Subscribe(originName, func(msg []byte) {
		var x originReport
		if json.Unmarshal(msg, &x) == nil {
			s.takeReport(&x)
		}
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	stop()
	return nil
}

// measures are what this process knows of how an origin answers.
type measures struct {
	own *signals.Meter

	mu      sync.Mutex
	pushed  signals.Report // by others, since the last report to the host
	load    float64        // of the last report of a load; 0: none
	until   time.Time      // it holds until then
	trouble string         // of the last query, as it is logged
}

// loadHolds is how long a reported load counts. Chosen: a minute's loss of two reports does not end it.
const loadHolds = 30 * time.Second

// meter returns the meter of the requests to the origin; nil if nobody needs it.
func (g *gate) meter() *signals.Meter {
	if g.file.Auto.Mode == "" {
		return nil
	}
	return g.measures.own
}

// ReportLoad implements api.Process. The report goes to the host of the room with the next of this node.
func (s *Server) ReportLoad(room string, x *signals.Report) error {
	g := s.set.Load().find(room)
	if g == nil {
		return api.ErrNoRoom
	}
	if g.meter() == nil {
		return &api.RejectedError{
			Reason: "the limits of the room are numbers: nobody needs the load of its origin",
			Do:     "write total_active_users: {auto: true, min: 50, max: 5000} into the file",
		}
	}
	m := g.measures
	m.mu.Lock()
	defer m.mu.Unlock()
	if x.Load > 0 {
		m.load, m.until = x.Load, time.Now().Add(loadHolds)
	}
	m.pushed.Add(&signals.Report{Routes: x.Routes})
	return nil
}

// read returns what is known since the last read.
func (m *measures) read(now time.Time) *signals.Report {
	x := m.own.Read()
	m.mu.Lock()
	defer m.mu.Unlock()
	x.Add(&m.pushed)
	m.pushed = signals.Report{}
	if now.Before(m.until) {
		x.Load = m.load
	}
	return x
}

// measure sends what is known of the origins to the hosts of the rooms that find their limits, until ctx
// ends.
func (s *Server) measure(ctx context.Context) {
	client := promql.New(s.machine.Dial)
	signals.Each(ctx, func(wg *sync.WaitGroup) {
		for _, g := range s.set.Load().gates {
			if g.meter() == nil {
				continue
			}
			wg.Go(func() {
				x := g.measures.read(time.Now())
				s.query(ctx, client, g, x)
				if err := g.room.SendSignals(ctx, x); err != nil && ctx.Err() == nil {
					s.log.Debug("signals of the origin not sent", "room", g.file.Name, "error", err)
				}
			})
		}
	})
}

// query adds the load that Prometheus knows, at the host of the room.
func (s *Server) query(ctx context.Context, client *promql.Client, g *gate, x *signals.Report) {
	a, m := &g.file.Auto, g.measures
	if a.Prometheus == nil || !g.room.Status().Hosted {
		return
	}
	load, err := client.Number(ctx, a.Prometheus, a.Query)
	if err == nil {
		x.Load = min(max(x.Load, load, api.LeastLoad), api.MostLoad)
	} else if ctx.Err() == nil {
		x.Trouble = "origin_signal gives no signal: " + err.Error()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case x.Trouble == m.trouble:
	case x.Trouble == "":
		s.log.Info("origin_signal gives a signal again", "room", g.file.Name, "load", load)
	default:
		s.log.Warn("origin_signal gives no signal", "room", g.file.Name, "error", err)
	}
	m.trouble = x.Trouble
}

// brokenEach is how often the log has a line about a room's unanswered requests. Chosen: an
// operator finds the cause in the log, and an origin that is down all night does not fill the disk.
const brokenEach = time.Minute

// mostReason is how many bytes of an error are logged: the text may come from the origin.
const mostReason = 300

// due reports whether to log an unanswered request, and returns how many of the same code were not
// logged since the last line. Only a silent or broken origin is logged: requests that ended because
// of the client or of their session say nothing about the origin.
func (b *brokenAnswers) due(code int, now time.Time) (more int, ok bool) {
	x := &b.gateway
	switch code {
	case http.StatusBadGateway:
	case http.StatusGatewayTimeout:
		x = &b.timeout
	default:
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !x.told.IsZero() && now.Sub(x.told) < brokenEach {
		x.more++
		return 0, false
	}
	more, x.more, x.told = x.more, 0, now
	return more, true
}

// shortly returns the cause of an error without the texts that wrap it.
func shortly(err error) string {
	if e, ok := errors.AsType[*proxy.Error](err); ok {
		err = e.Err // the code is logged separately
	}
	return hint.Cut(err.Error(), mostReason)
}

// originError answers a visitor when the origin did not answer.
func (s *Server) originError(
	room string, broken *brokenAnswers, w http.ResponseWriter, r *http.Request, err error,
) {
	code := http.StatusBadGateway
	if e, ok := errors.AsType[*proxy.Error](err); ok {
		code = e.Status
	}
	id := strings.ToLower(rand.Text()[:12])
	if more, due := broken.due(code, time.Now()); due {
		s.log.Warn("origin did not answer", "room", room, "code", code, "request", id,
			"error", shortly(err), "not_told_before", more)
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Request-Id", id)
	h.Set("Retry-After", strconv.Itoa(int(errorRetry.Seconds())))
	g := s.set.Load().find(room)
	if g != nil {
		g.cors.Share(h, r)
	}
	if g == nil || !headgate.Navigates(r) { // a script or a form must not receive a page as its answer
		http.Error(w, "the site does not answer; request "+id, code)
		return
	}
	f := &pages.Failure{Title: g.now.Title, Code: code, RequestID: id,
		AcceptLanguage: r.Header.Get("Accept-Language"), AcceptEncoding: r.Header.Get("Accept-Encoding")}
	var body bytes.Buffer
	if err := g.look.page.RenderFailure(&body, f); err != nil {
		http.Error(w, http.StatusText(code), code)
		return
	}
	maps.Copy(h, g.look.page.FailureHeader(f))
	h.Add("Vary", "Accept-Encoding, Accept-Language")
	w.WriteHeader(code)
	w.Write(body.Bytes())
}
