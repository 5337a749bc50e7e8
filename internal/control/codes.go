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
	all map[string]revokedSet
}

// A revokedSet is what is revoked in a room, as a revision of its record says.
type revokedSet struct {
	invite.RevokedSet
	revision uint64
	at       time.Time
}

// A revokedRecord is what is stored.
type revokedRecord struct {
	Revoked []string  `json:"revoked"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
}

// NewRevokedCodes returns the revoked invitations in the records of a node.
func NewRevokedCodes(n *node.Node, log *slog.Logger) *RevokedCodes {
	return &RevokedCodes{node: n, log: log, all: map[string]revokedSet{}}
}

func (r *RevokedCodes) doc(room string) *store.Doc[revokedRecord] {
	return &store.Doc[revokedRecord]{Store: r.node.Records, Key: "codes." + room,
		Bus: r.node.Bus, Topic: revokedTopic, Message: []byte(room), Log: r.log}
}

// Of returns what is revoked in a room, as far as it is known here.
func (r *RevokedCodes) Of(room string) invite.RevokedSet {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all[room].RevokedSet
}

// Load reads what is revoked in a room.
func (r *RevokedCodes) Load(ctx context.Context, room string) error {
	rec, revision, err := r.doc(room).Load(ctx)
	if err == nil {
		r.set(room, &rec, revision)
	}
	return err
}

// set notes what a record says, unless a later one is known: a change may be made while an earlier record is
// on its way. A recreated store counts its revisions from the beginning.
func (r *RevokedCodes) set(room string, rec *revokedRecord, revision uint64) {
	now := revokedSet{invite.NewRevoked(rec.Revoked), revision, rec.At}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.all[room]; revision >= was.revision || rec.At.After(was.at) {
		r.all[room] = now
	}
}

// Change revokes and allows invitations of a room. It returns what is revoked after that, and was before.
func (r *RevokedCodes) Change(
	ctx context.Context, room string, revoke, allow []invite.Target, by string,
) (after, before []string, err error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), ChangeWait) // not half done
	defer stop()
	var newest revokedRecord
	revision, err := r.doc(room).Edit(ctx, func(rec *revokedRecord) (bool, error) {
		was := invite.NewRevoked(rec.Revoked)
		next, err := was.Change(revoke, allow)
		if err != nil {
			return false, err
		}
		before, after = was.Names(), next.Names()
		newest = *rec
		if slices.Equal(after, before) {
			return false, nil
		}
		newest = revokedRecord{Revoked: after, At: time.Now().UTC(), By: by}
		*rec = newest
		return true, nil
	})
	if err == nil {
		r.set(room, &newest, revision)
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
