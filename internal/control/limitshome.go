package control

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/ratelimit"
)

// The home decides the limits that all data centers share, and stores their live changes. Another
// data center sends its change to the home as a request. The others have copies, which come with
// the shares.

// Parameters of a change in another data center. Chosen: as long as a change of a room.
const (
	homeWait = 5 * time.Second
	linkWait = 1500 * time.Millisecond // for the own link; then other nodes try theirs
)

// Names of the requests: to the home on a link, and to the own store nodes.
const (
	changeName = ".limit"
	passName   = "limit-at-home"
)

// A limitAsk asks the home to change a limit. All nodes of the home receive it, so it may be
// handled more than once. It takes effect once, if the version Was is still in force.
type limitAsk struct {
	Name string      `json:"name"`
	Was  uint64      `json:"was"`
	Next limitChange `json:"next"` // the home ignores Of, which is from the sender
	By   string      `json:"by,omitempty"`
	// Made requests a dynamic limit instead of a change.
	Made *dynamicAsk `json:"made,omitempty"`
}

// A limitAnswer is what is in force after a request, or why the change was rejected.
type limitAnswer struct {
	Now     limitChange `json:"now"`
	Made    *dynamicSet `json:"made,omitempty"`
	Refused string      `json:"refused,omitempty"`
}

// ofAll reports whether all data centers share a limit.
func ofAll(f Definition) bool { return f.Scope == ratelimit.ScopeGlobal || f.Scope == "" }

// home returns the other data center that decides a limit, or "" if this one does.
func (s *Limits) home(f Definition) string {
	k := s.node
	if !k.Linked() || !ofAll(f) {
		return ""
	}
	if home := k.Rooms.AnywhereHome(); home != k.Config.Datacenters.Own {
		return home
	}
	return ""
}

// askHome sends a request to the home, through the link of this node or, if that fails, through
// those of the other nodes.
func (s *Limits) askHome(ctx context.Context, home string, q *limitAsk) (told limitAnswer, err error) {
	q.By = api.Actor(ctx)
	msg, err := json.Marshal(q)
	if err != nil {
		return told, err
	}
	b, err := s.askByLink(ctx, home, msg)
	if err != nil {
		b, err = s.node.Bus.Request(ctx, passName, msg)
	}
	if err == nil {
		err = json.Unmarshal(b, &told)
	}
	if err != nil {
		err = &api.NotPersistedError{Err: err,
			Reason: "this limit is decided in data center " + home + ", which does not answer",
			Do: "check that the data centers reach each other (headgate doctor) and whether the " +
				"change is in force, and repeat it if not"}
	}
	return told, err
}

// askByLink sends a request to the home through the link of this node.
func (s *Limits) askByLink(ctx context.Context, home string, msg []byte) ([]byte, error) {
	if s.node.Engine == nil {
		return nil, store.ErrNoResponder
	}
	ctx, stop := context.WithTimeout(ctx, linkWait)
	defer stop()
	return store.NewBus(s.node.Engine.Link(home)).Request(ctx, home+changeName, msg)
}

// A dynamicAsk asks the home to store the new state of a limit. The home does so once, if its
// snapshot still has the version Was.
type dynamicAsk struct {
	Was  uint64        `json:"was"`
	Next uint64        `json:"next"`
	Put  *dynamicLimit `json:"put"` // null: remove it
}
