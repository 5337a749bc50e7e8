package boot

import "testing"

func TestAClockNeverGoesBackNorAhead(t *testing.T) {
	c := New()
	last := c.Read()
	for range 100_000 {
		now := c.Read()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
	if kernel := Now(); last > kernel {
		t.Errorf("%v, and the system says %v", last, kernel)
	}
}

func BenchmarkRead(b *testing.B) {
	clock := New()
	for b.Loop() {
		clock.Read()
	}
}
