//go:build crowd || soak

package crowd

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/loopback"
)

// A rehearsal is one run of the real binary.
type rehearsal struct {
	limits  Limits
	session time.Duration
	crowd   crowd.Config // URL and LeavePath are filled in
}

// run builds headgate, starts it before a judging origin, sends the crowd and
// holds what was seen against the limits.
func (re *rehearsal) run(t *testing.T) {
	origin, err := StartOrigin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := origin.Close(); err != nil {
			t.Error(err)
		}
	}()
	public, admin := loopback.Free(t), loopback.Free(t)
	Start(t, Build(t), re.arguments(origin.URL, public, admin)...)
	AwaitReady(t, "http://"+admin)

	ctx, cancel := context.WithTimeout(t.Context(), re.crowd.Duration+time.Minute)
	defer cancel()
	run := Run{Limits: re.limits}
	watchCtx, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	var wg sync.WaitGroup
	wg.Go(func() { run.Room = WatchRoom(watchCtx, "http://"+admin) })

	re.crowd.URL, re.crowd.LeavePath = "http://"+public+"/", LeavePath
	run.Crowd, err = crowd.Run(ctx, re.crowd, nil)
	stopWatch()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if run.Metrics, err = Get(ctx, "http://"+admin+"/metrics"); err != nil {
		t.Error(err)
	}
	if run.Analytics, err = keptOf(ctx, "http://"+admin); err != nil {
		t.Error(err)
	}
	run.Origin, run.Strangers = origin.Requests(), origin.Strangers()

	figures := run.Verdict()
	var summary strings.Builder
	s := run.Crowd.Summary()
	if err := s.Write(&summary); err != nil {
		t.Error(err)
	}
	t.Logf("seed %d\n%s\n%s", re.crowd.Seed, Table(figures), &summary)
	for _, f := range figures {
		if !f.OK() {
			t.Errorf("%s: %.4g, limit %.4g %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
}

func (re *rehearsal) arguments(origin, public, admin string) []string {
	return strings.Fields("run --origin " + origin +
		" --total-active-users " + strconv.Itoa(re.limits.Total) +
		" --new-users-per-minute " + strconv.Itoa(re.limits.New) +
		" --session-duration " + re.session.String() +
		" --listen " + public + " --admin-listen " + admin)
}
