//go:build real

package server

import (
	"math"
	"testing"
	"time"
)

// Each node tells of the whole room: one of them counts it, and the others know what it said.
func TestMetricsOfManyNodes(t *testing.T) {
	t.Parallel()
	all := nodes(t, threeInside, "n1", "n2", "n3")
	for i := range 5 {
		get(t, all[i%3].visitors+"/", "")
	}
	for _, p := range all {
		eventually(t, "known", func() bool {
			return p.metric(`headgate_active_users{room="shop"}`) == 3 &&
				p.metric(`headgate_waiting_users{room="shop"}`) == 2 &&
				p.metric("headgate_cluster_nodes") == 3
		})
		if bound := p.metric(`headgate_active_users_bound{room="shop"}`); bound != 3 {
			t.Errorf("bound %g", bound)
		}
		off := p.metric("headgate_clock_offset_seconds")
		if math.Abs(off) > 5 { // the same clock, on a busy machine
			t.Errorf("the clock is %g s off", off)
		}
		ends := p.metric("headgate_cluster_certificate_expires_timestamp_seconds")
		if left := time.Until(time.Unix(int64(ends), 0)); left < 360*24*time.Hour {
			t.Errorf("the certificate ends in %v", left)
		}
	}
	eventually(t, "counted by one", func() bool {
		n := 0.0
		for _, p := range all {
			hosted := p.metric(`headgate_room_hosted{datacenter="sjc",room="shop"}`)
			age := p.metric(`headgate_room_state_age_seconds{room="shop"}`)
			if n += hosted; hosted == 1 && age != 0 || !(age >= 0 && age < 10) {
				return false
			}
		}
		return n == 1
	})
}
