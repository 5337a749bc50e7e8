//go:build real

package node

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/store"
)

// Several nodes check every few seconds whether the key is too old. While a new key waits until all
// nodes know it, none of them makes another.
func TestAnOldSharedKeyIsReplacedOnce(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &store.Memory{}
	var nodes []*Node
	for range 3 {
		nodes = append(nodes, &Node{keys: &sharedKeys{store: s, now: func() time.Time { return now }}})
	}
	look := func() (keys []datadir.SealingKey) {
		t.Helper()
		for _, k := range nodes {
			got, err := k.keys.Keys()
			if err == nil {
				got, err = k.rotate(got, now)
			}
			if err != nil {
				t.Fatal(err)
			}
			keys = got
		}
		return keys
	}
	first := look()[0].ID
	now = now.Add(rotateEvery + time.Second)
	for range 10 {
		keys := look()
		if late := now.Sub(newest(keys).Made) >= sealsAfter; len(keys) != 2 || keys[0].ID == first == late {
			t.Fatalf("%d keys, %d seals %v after the new one was made", len(keys), keys[0].ID,
				now.Sub(newest(keys).Made))
		}
		now = now.Add(keysEvery)
	}
}
