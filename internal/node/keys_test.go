package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/store"
)

// A shared key can be deleted at any node, unless it seals or is about to.
func TestASharedKeyIsForgotten(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s := &store.Memory{}
	a, b := &sharedKeys{store: s, now: clock}, &sharedKeys{store: s, now: clock}
	ids := func(k *sharedKeys) (all []byte) {
		t.Helper()
		keys, err := k.Keys()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range keys {
			all = append(all, x.ID)
		}
		return all
	}
	ids(a)
	now = now.Add(time.Hour)
	if _, err := a.Rotate(now); err != nil {
		t.Fatal(err)
	}
	for _, id := range []byte{1, 2} { // 1 still seals, 2 is about to
		if _, err := b.Forget(id); !errors.Is(err, datadir.ErrKeySeals) {
			t.Errorf("key %d: %v", id, err)
		}
	}
	now = now.Add(sealsAfter)
	if _, err := b.Forget(1); err != nil {
		t.Error(err)
	}
	if _, err := b.Forget(1); !errors.Is(err, datadir.ErrNoKey) {
		t.Errorf("once more: %v", err)
	}
	if got := ids(a); !slices.Equal(got, []byte{2}) {
		t.Errorf("keys %v, want 2", got)
	}
}

// Keys from another data center can be ordered or are rejected, whatever they contain.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(`[{"id":1,"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","made":"2026-01-02T03:04:05Z"}]`))
	f.Add([]byte(`[{"id":0}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := keysDoc(nil, keysName).Decode(b)
		if err != nil {
			return
		}
		if all := (&sharedKeys{now: time.Now}).order(keys); len(all) != len(keys) {
			t.Errorf("%q: %d of %d keys", b, len(all), len(keys))
		}
	})
}
