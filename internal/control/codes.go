package control

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

const revokedTopic = "codes"

// RevokedCodes holds the revoked invitations of the rooms, with one record for each room. A reload changes
// nothing there.
type RevokedCodes struct {
	node *node.Node
	log  *slog.Logger

	mu  sync.RWMutex
	all map[string]invite.RevokedSet
}

// A revokedRecord is what is stored.
type revokedRecord struct {
	Revoked []string  `json:"revoked"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
}

// NewRevokedCodes returns the revoked invitations in the records of a node.
func NewRevokedCodes(n *node.Node, log *slog.Logger) *RevokedCodes {
	return &RevokedCodes{node: n, log: log, all: map[string]invite.RevokedSet{}}
}

func (r *RevokedCodes) doc(room string) *store.Doc[revokedRecord] {
	return &store.Doc[revokedRecord]{Store: r.node.Records, Key: "codes." + room,
		Bus: r.node.Bus, Topic: revokedTopic, Message: []byte(room), Log: r.log}
}

// Of returns what is revoked in a room, as far as it is known here.
func (r *RevokedCodes) Of(room string) invite.RevokedSet {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all[room]
}

// Load reads what is revoked in a room.
func (r *RevokedCodes) Load(ctx context.Context, room string) error {
	rec, _, err := r.doc(room).Load(ctx)
	if err == nil {
		r.set(room, rec.Revoked)
	}
	return err
}

func (r *RevokedCodes) set(room string, names []string) {
	now := invite.NewRevoked(names)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[room] = now
}

// Change revokes and allows invitations of a room. It returns what is revoked after that, and was before.
func (r *RevokedCodes) Change(
	ctx context.Context, room string, revoke, allow []invite.Target, by string,
) (after, before []string, err error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), ChangeWait) // not half done
	defer stop()
	_, err = r.doc(room).Edit(ctx, func(rec *revokedRecord) (bool, error) {
		was := invite.NewRevoked(rec.Revoked)
		next, err := was.Change(revoke, allow)
		if err != nil {
			return false, err
		}
		before, after = was.Names(), next.Names()
		*rec = revokedRecord{Revoked: after, At: time.Now().UTC(), By: by}
		return !slices.Equal(after, before), nil
	})
	if err == nil {
		r.set(room, after)
	}
	return after, before, err
}

// Follow reads what other nodes change in the rooms, until ctx ends.
func (r *RevokedCodes) Follow(ctx context.Context, rooms func() []string) error {
	return store.Follow(ctx, r.node.Bus, revokedTopic, FollowEvery, func(room []byte) {
		known := rooms()
		if slices.Contains(known, string(room)) {
			known = []string{string(room)}
		} else if room != nil {
			return
		}
		for _, room := range known {
			if err := r.Load(ctx, room); err != nil && ctx.Err() == nil {
				r.log.Warn("revoked invitations not read", "room", room, "error", err)
			}
		}
	})
}
