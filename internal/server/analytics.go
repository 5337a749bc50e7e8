package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/analytics"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/node"
)

// Parameters of the analytics. Chosen.
const (
	analyticsName = "analytics."    // prefix of the subject on which a node answers, before its name
	analyticsWait = 3 * time.Second // for the answers of other nodes
	mostAnalytics = 900 << 10       // bytes of an answer: a NATS message holds a megabyte
)

// newAnalytics returns the recorder of the statistics, or nil if they are not kept.
func (s *Server) newAnalytics() *analytics.Recorder {
	c := &s.cfg.Analytics
	if !c.Enabled {
		return nil
	}
	const day = 24 * time.Hour
	return analytics.New(analytics.Config{
		Dir: s.node.Folder.Path("analytics"), Days: int(c.Keep / day), Hours: int(c.KeepHours / day),
		MaxBytes: c.MaxBytes, Read: s.readCounts, Log: s.log,
	})
}

// readCounts passes the current counts of everything that this process records to give.
func (s *Server) readCounts(give func(*analytics.Sample)) {
	for _, g := range s.set.Load().gates {
		give(g.reading())
	}
	for _, c := range s.limits.Rules.Limits() {
		t, err := s.limits.Rules.Totals(c.Name)
		if err != nil { // removed in the meantime
			continue
		}
		give(&analytics.Sample{Series: analytics.Series{Kind: analytics.Limit, Name: c.Name},
			Values: []int64{int64(t.Passed), int64(t.Refused), int64(t.Exceeded), int64(t.Unreachable)}})
	}
	ctx, stop := context.WithTimeout(context.Background(), collectWait)
	defer stop()
	for _, q := range s.jobs.all() {
		if !q.Hosted() {
			continue
		}
		st, err := q.Status(ctx)
		if err != nil { // handed over in the meantime
			continue
		}
		t, depth := &st.Totals, int64(st.Depth)
		give(&analytics.Sample{Series: analytics.Series{Kind: analytics.Queue, Name: st.Name},
			Values: []int64{1, depth, depth, t.Put, t.Delivered, t.Retried, t.Busy, t.Dead, int64(st.Dead)}})
	}
}

// reading returns the current counts of a room. The figures of its counter are included only by the
// process that hosts it, so that they count once.
func (g *gate) reading() *analytics.Sample {
	st, o := g.room.Status(), g.origin
	t := &st.Totals
	r := &analytics.Sample{Series: analytics.Series{Kind: analytics.Room, Name: g.file.Name},
		Values: []int64{analytics.RoomOriginGone: o.gone.Load(),
			analytics.RoomAdmitted: t.Admitted, analytics.RoomJoined: t.Joined,
			analytics.RoomLeft:    t.LeftLine,
			analytics.RoomRevoked: t.Revoked, analytics.RoomPolls: t.WaitingAnswers,
			analytics.RoomPassesBack: t.PassesBack, analytics.RoomPlacesBack: t.PlacesBack,
			analytics.RoomOrigin2xx: o.c2xx.Load(), analytics.RoomOrigin3xx: o.c3xx.Load(),
			analytics.RoomOrigin4xx: o.c4xx.Load(), analytics.RoomOrigin5xx: o.c5xx.Load(),
			analytics.RoomOriginNone:   o.none.Load(),
			analytics.RoomPassesShared: t.PassesShared, analytics.RoomPassesRefused: t.PassesRefused,
		},
		Tallies: []*histogram.Histogram{
			analytics.RoomWaited: g.room.Waited, analytics.RoomInside: g.room.Inside,
			analytics.RoomSilent: g.room.Silent, analytics.RoomOrigin: &o.took,
		},
	}
	if v := r.Values; st.Hosted && st.Record.Damaged == "" {
		v[analytics.RoomSeen] = 1
		v[analytics.RoomActive], v[analytics.RoomActiveMax] = st.ActiveUsers, st.ActiveUsers
		v[analytics.RoomWaiting], v[analytics.RoomWaitingMax] = st.WaitingUsers, st.WaitingUsers
		v[analytics.RoomActiveLimit], v[analytics.RoomNewLimit] = st.TotalActiveUsers, st.NewUsersPerMinute
		v[analytics.RoomExpired] = t.Expired
	}
	return r
}

// keepAnalytics samples the counts and answers other nodes, until ctx ends.
func (s *Server) keepAnalytics(ctx context.Context) error {
	if s.analytics == nil {
		return nil
	}
	if k := s.node; k.Bus != nil {
		silent, err := k.Bus.Serve(analyticsName+k.Config.Node, s.answerAnalytics)
		if err != nil {
			return err
		}
		defer silent()
	}
	s.analytics.Run(ctx)
	return nil
}

// answerAnalytics answers another node with the statistics of this one, or with nothing if they
// cannot be read.
func (s *Server) answerAnalytics(_ context.Context, msg []byte) []byte {
	var q analytics.Query
	if json.Unmarshal(msg, &q) != nil || q.Check() != nil {
		return nil
	}
	rows, err := s.analytics.Rows(&q)
	b := analytics.AppendRows([]byte{0}, rows)
	if err == nil && len(b) > mostAnalytics {
		err = errors.New("the answer is too long for a message")
	}
	if err != nil {
		s.log.Warn("analytics not told to another node", "error", err)
		return nil
	}
	return b
}

// A history answers the API's requests for statistics.
type history struct{ s *Server }

// Rows implements api.Analytics.
func (h history) Rows(
	ctx context.Context, q *analytics.Query,
) (rows []analytics.Row, missing []string, err error) {
	if h.s.analytics == nil {
		return nil, nil, api.ErrNoAnalytics
	}
	own, err := h.s.analytics.Rows(q)
	if err != nil {
		return nil, nil, err
	}
	k := h.s.node
	if k.Bus == nil {
		return own, nil, nil
	}
	msg, err := json.Marshal(q)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithTimeout(ctx, analyticsWait)
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	parts := [][]analytics.Row{own}
	for _, n := range k.Rooms.Nodes() {
		if n.Name == k.Config.Node {
			continue
		}
		if !n.Alive {
			mu.Lock()
			missing = append(missing, n.Name)
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			rows, err := askAnalytics(ctx, k, n.Name, msg, q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				missing = append(missing, n.Name)
				return
			}
			parts = append(parts, rows)
		})
	}
	wg.Wait()
	slices.Sort(missing)
	return analytics.Merge(q.Kind, q.From, q.To, q.Step, parts...), missing, nil
}

func askAnalytics(
	ctx context.Context, k *node.Node, node string, msg []byte, q *analytics.Query,
) ([]analytics.Row, error) {
	b, err := k.Bus.Request(ctx, analyticsName+node, msg)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 || b[0] != 0 {
		return nil, errors.New("it speaks another language")
	}
	return analytics.ParseRows(q.Kind, q.From, q.To, q.Step, b[1:])
}

// Facts implements api.Analytics.
func (h history) Facts(room string) (f analytics.RoomSettings, ok bool) {
	g := h.s.set.Load().find(room)
	if g == nil {
		return f, false
	}
	c := &g.now
	return analytics.RoomSettings{Room: room, Active: c.TotalActiveUsers, New: c.NewUsersPerMinute,
		Session: c.SessionDuration, Renewed: c.SessionRenewal, Hold: c.Hold}, true
}
