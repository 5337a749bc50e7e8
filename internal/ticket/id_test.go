package ticket

import (
	"math/rand/v2"
	"testing"
)

func TestATicketsShortIDCanBeTurnedBack(t *testing.T) {
	seen := map[string]bool{}
	for i := range uint64(20_000) {
		life, number := rand.Uint64(), i
		if i%2 == 0 {
			life, number = 7, rand.Uint64N(1<<40)
		}
		id := ShortID(life, number)
		got, ok := Number(life, id)
		if !ok || got != number || len(id) != 8 {
			t.Fatalf("%d became %q became %d", number, id, got)
		}
		if other, _ := Number(life+1, id); other == number {
			t.Fatalf("%q names the same ticket in another life", id)
		}
		seen[id] = true
	}
	if len(seen) < 19_900 {
		t.Errorf("%d different ids of 20,000", len(seen))
	}
}
