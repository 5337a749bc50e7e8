package datadir

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Two rotations at once drew the same number, and the second wrote over the key with
// which the first may have sealed already.
func TestTwoRotationsAtOnceLoseNoKey(t *testing.T) {
	for range 20 {
		f, err := Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var got [3]SealingKey
		for i := range got {
			wg.Go(func() {
				keys, err := f.Keys() // makes the first one
				if err == nil && i > 0 {
					keys, err = f.Rotate(time.Now())
				}
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = keys[0]
			})
		}
		wg.Wait()
		now, err := f.Keys()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range got {
			if !slices.ContainsFunc(now, func(x SealingKey) bool { return x.Key == k.Key }) {
				t.Errorf("key %d, which may have sealed, is gone", k.ID)
			}
		}
		if len(now) != len(got) {
			t.Errorf("%d keys, want %d", len(now), len(got))
		}
		f.Close()
	}
}
