package control

import (
	"context"
	"log/slog"
	"testing"

	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

// A slowStore answers a read late: changes are made after it has read.
type slowStore struct {
	store.Memory
	meanwhile func()
}

func (s *slowStore) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	b, revision, err := s.Memory.Load(ctx, key)
	if do := s.meanwhile; do != nil {
		s.meanwhile = nil
		do()
	}
	return b, revision, err
}

// TestARevokedInvitationIsNotReadOver checks that an earlier record, read by the follower, does not replace
// what was revoked meanwhile.
func TestARevokedInvitationIsNotReadOver(t *testing.T) {
	s := &slowStore{}
	r := NewRevokedCodes(&node.Node{Records: s}, slog.New(slog.DiscardHandler))
	change := func(revoke, allow []invite.Target) {
		t.Helper()
		if _, _, err := r.Change(t.Context(), "shop", revoke, allow, "a test"); err != nil {
			t.Fatal(err)
		}
	}
	three, four := []invite.Target{{Batch: 3}}, []invite.Target{{Batch: 4}}
	for _, c := range []struct {
		revoke, allow []invite.Target
		want          bool
	}{{three, nil, true}, {nil, three, false}, {four, nil, false}, {three, four, true}, {three, nil, true}} {
		s.meanwhile = func() { change(c.revoke, c.allow) }
		for range 2 {
			if err := r.Load(t.Context(), "shop"); err != nil {
				t.Fatal(err)
			}
			if r.Of("shop").Has(invite.Code{Batch: 3, Serial: 1}) != c.want {
				t.Errorf("revoked %v, allowed %v: %v are", c.revoke, c.allow, r.Of("shop").Names())
			}
		}
	}
}
