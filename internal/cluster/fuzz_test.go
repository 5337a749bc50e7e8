package cluster

import (
	"testing"
	"time"
)

func FuzzMember(f *testing.F) {
	f.Add([]byte(`{"name":"n1","life":1,"hosts":true,"rooms":["shop"],"leaving":true}`), true)
	f.Add([]byte(`{"name":"w1","hosts":true,"version":"1"}`), false)
	f.Fuzz(func(t *testing.T, b []byte, hosts bool) {
		m := NewMembers(nil, Member{Name: "n0", CanHost: true}, func() time.Duration { return time.Hour },
			nil)
		m.hear(&Member{Name: "n1", Life: 1, CanHost: true})
		parseMember(b, hosts, func(x *Member) {
			if x.Name == "" || len(x.Name) > mostMemberName || !hosts && (x.CanHost || len(x.Rooms) > 0) {
				t.Errorf("%q: %+v", b, x)
			}
			if x.Name != "n0" {
				m.hear(x)
			}
		})
		for _, x := range m.All() {
			if x.Name == "n1" && !x.CanHost && !hosts {
				t.Errorf("%q: a worker has taken the name of a store node", b)
			}
		}
	})
}
