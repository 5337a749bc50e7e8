package node

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// The wall clock of the node that rotates is a minute behind. No other node may seal with the new
// key as soon as it reads it, which can be up to 5 s before the last node has read it.
func TestAKeyOfASlowClockDoesNotSealAtOnce(t *testing.T) {
	mem := openMemory(t)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *sharedKeys {
		return &sharedKeys{store: mem, now: func() time.Time { return now.Add(d) }}
	}
	slow, b, c := at(-time.Minute), at(0), at(0)
	if _, err := slow.Keys(); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	knownToC, _ := c.Keys()
	b.Keys()
	if _, err := slow.Rotate(now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	got, _ := b.Keys()
	if got[0].ID != knownToC[0].ID {
		t.Errorf("a second after the rotation b seals with key %d; c, which reads each 5 s, knows %d only",
			got[0].ID, knownToC[0].ID)
	}
}

func openMemory(*testing.T) store.Store { return &store.Memory{} }
