package seldom

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneLineOfEachKindInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lines
		count := func(kind string) (n int) {
			for range 10 {
				if l.Due(kind) {
					n++
				}
			}
			return n
		}
		for range 2 {
			if a, b := count("a"), count("b"); a != 1 || b != 1 {
				t.Errorf("%d and %d lines", a, b)
			}
			time.Sleep(time.Minute)
		}
		for i := range 10 * most { // what an attacker chooses
			l.Due(strconv.Itoa(i))
		}
		if len(l.last) > most {
			t.Errorf("%d kinds are kept", len(l.last))
		}
	})
}
