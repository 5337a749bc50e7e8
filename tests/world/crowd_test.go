package world

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/tests/virtual"
)

// TestACrowdSolvesItsChallenges: the visitors of headgate crowd wait in the ordinary line of a room with a
// proof of work, as browsers do, in the order of their arrival. Without solvers they wait in the lane of
// those who solve nothing, and come in too.
func TestACrowdSolvesItsChallenges(t *testing.T) {
	for solvers, mode := range map[int]crowd.Mode{-1: crowd.ModePage, 0: crowd.ModePage, 1: crowd.ModeJSON} {
		if solvers > 0 && testing.Short() {
			continue // the race detector slows the solving tenfold
		}
		virtual.Test(t, func(t *testing.T) { testACrowdSolvesItsChallenges(t, mode, solvers) })
	}
}

func testACrowdSolvesItsChallenges(t *testing.T, mode crowd.Mode, solvers int) {
	w := New(t, Config{Seed: 7, Servers: []string{"n1"}})
	defer w.Close()
	defer serve(w, "127.0.0.1:9000", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "leave") {
			w.Header().Set("Headgate-Command", "revoke")
		}
		io.WriteString(w, "page")
	})()
	n := w.Add("n1", "rooms:\n  - {name: shop, origin: \"http://127.0.0.1:9000\", total_active_users: 2, "+
		"new_users_per_minute: 600, session_duration: 1m, challenge: {kind: work}}\n")
	n.Start()
	n.Ready()
	r, err := crowd.Run(t.Context(), crowd.Config{URL: "http://" + n.Public + "/", N: 8, Mode: mode,
		Arrive: 3 * time.Second, SessionMin: 4 * time.Second, SessionMax: 5 * time.Second, Solvers: solvers,
		LeavePath: "leave", RevokeShare: 1, Transport: w.client.Transport}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, again := r.Summary(), 0
	for i := range r.Visitors {
		if r.Visitors[i].Renumbered {
			again++
		}
	}
	if s.Admitted != s.Visitors || !s.OK() {
		t.Errorf("%s, %d solvers: %+v", mode, solvers, s)
	}
	solves := solvers >= 0
	if s.Challenges < 4 || solves != (s.Solutions == s.Challenges) || solves != (again == 0) ||
		!solves && s.Solutions > 0 {
		t.Errorf("%s, %d solvers: %d challenges, %d solved, %d joined again", mode, solvers,
			s.Challenges, s.Solutions, again)
	}
}

// TestACrowdHasInvitations: each visitor of headgate crowd opens the link of an invitation, and comes in by
// it. A code that is none is an error of the crowd, and lets nobody in.
func TestACrowdHasInvitations(t *testing.T) { virtual.Test(t, testACrowdHasInvitations) }

func testACrowdHasInvitations(t *testing.T) {
	w := New(t, Config{Seed: 8, Servers: []string{"n1"}})
	defer w.Close()
	var inside atomic.Int64
	defer serve(w, "127.0.0.1:9000", func(w http.ResponseWriter, _ *http.Request) {
		inside.Add(1)
		io.WriteString(w, "page")
	})()
	file := filepath.Join(t.TempDir(), "codes.key")
	if err := os.WriteFile(file, []byte(strings.Repeat("5ecret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	n := w.Add("n1", "rooms:\n  - {name: shop, origin: \"http://127.0.0.1:9000\", total_active_users: 100, "+
		"new_users_per_minute: 600, identity: {codes: {secret_file: "+file+"}, required: true, sign_in: /sign-in}}\n")
	n.Start()
	n.Ready()
	key, err := invite.ReadKey("shop", file)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for i := range 5 {
		c := invite.Code{Batch: 1, Serial: i + 1, Uses: 1, End: invite.EndAt(invite.Latest())}
		codes = append(codes, key.New(c))
	}
	come := func(codes ...string) crowd.Summary {
		r, err := crowd.Run(t.Context(), crowd.Config{URL: "http://" + n.Public + "/?from=mail", N: 5, Codes: codes,
			Arrive: time.Second, SessionMin: time.Second, SessionMax: time.Second,
			Transport: w.client.Transport}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.Summary()
	}
	if s := come(codes...); !s.OK() || s.Admitted != 5 || inside.Load() < 5 {
		t.Errorf("%+v, %d requests at the origin", s, inside.Load())
	}
	was := inside.Load()
	if s := come("12345"); s.Errors["invitation refused"] != 5 || s.Admitted > 0 || inside.Load() != was {
		t.Errorf("%+v, %d requests at the origin", s, inside.Load()-was)
	}
}
