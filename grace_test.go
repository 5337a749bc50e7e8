package headgate

import (
	"strings"
	"testing"
	"time"
)

func (v *visitor) at(path string) bool {
	return strings.HasPrefix(v.do("GET", path).Body.String(), "origin")
}

func TestGrace(t *testing.T) { //nolint:funlen // a list of cases
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
		PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond,
		Grace: Grace{Paths: []string{"/pay/"}, For: 10 * time.Minute}}
	fixed := cfg
	fixed.FixedSession = true
	bubble(t, "elsewhere a session is as long as without", func(t *testing.T) {
		for _, c := range []RoomConfig{cfg, fixed} {
			g := openGate(t, c)
			v, next := g.visitor(), g.visitor()
			if !v.at("/") || next.at("/") {
				t.Fatal("not one")
			}
			_, s := v.named()
			if s.Remaining < 59*time.Second || s.Remaining > 64*time.Second {
				t.Errorf("left %v", s.Remaining)
			}
			if !c.FixedSession { // a renewal is no longer either
				time.Sleep(10 * time.Second)
				v.at("/")
			}
			if next.until(55 * time.Second) {
				t.Error("too short")
			}
			if !next.until(12*time.Second) || !next.at("/") { // one who was called
				t.Error("too long")
			}
			if _, s = next.named(); s.Remaining < 58*time.Second || s.Remaining > 67*time.Second {
				t.Errorf("of a call: left %v", s.Remaining)
			}
			if next.until(time.Second); v.at("/") {
				t.Error("two")
			}
			g.stop()
			<-g.done
		}
	})
	bubble(t, "on its paths no visit ends in the middle", func(t *testing.T) {
		for _, c := range []RoomConfig{cfg, fixed} {
			g := openGate(t, c)
			v, next := g.visitor(), g.visitor()
			v.at("/")
			next.at("/")
			time.Sleep(55 * time.Second)
			if !v.at("/pay/card") {
				t.Fatal("over")
			}
			if next.until(10*time.Minute - time.Second) {
				t.Fatal("the slot was given away")
			}
			if !v.at("/pay/done") {
				t.Fatal("thrown out while paying")
			}
			g.stop()
			<-g.done
		}
	})
	bubble(t, "a fixed session gets grace once, and others wait no longer", func(t *testing.T) {
		g := openGate(t, fixed)
		v, next := g.visitor(), g.visitor()
		began := time.Now()
		v.at("/pay/")
		next.at("/")
		for time.Since(began) < 10*time.Minute+30*time.Second {
			if !v.at("/pay/") {
				t.Fatalf("thrown out after %v", time.Since(began))
			}
			time.Sleep(20 * time.Second)
		}
		if !next.until(time.Minute) || time.Since(began) > 11*time.Minute+10*time.Second || v.at("/pay/") {
			t.Errorf("after %v it goes on", time.Since(began))
		}
	})
	bubble(t, "what is in flight past a fixed end holds its slot no longer than that", func(t *testing.T) {
		g := openGate(t, fixed)
		v, next := g.visitor(), g.visitor()
		v.at("/")
		time.Sleep(50 * time.Second)
		next.at("/")
		g.slow = 30 * time.Second
		done := make(chan bool)
		go func() { done <- v.at("/") }()
		if next.until(29 * time.Second) {
			t.Error("two")
		}
		if <-done; !next.until(10 * time.Second) {
			t.Error("held for longer")
		}
	})
	bubble(t, "the hard end is the hard end", func(t *testing.T) {
		c := cfg
		c.HardEnd = 3 * time.Minute
		g := openGate(t, c)
		v, next := g.visitor(), g.visitor()
		v.at("/pay/")
		next.at("/")
		if next.until(170*time.Second) || !v.at("/pay/") {
			t.Error("too short")
		}
		if !next.until(15*time.Second) || v.at("/pay/") {
			t.Error("beyond the hard end")
		}
	})
	bubble(t, "a kill takes no grace away", func(t *testing.T) {
		for _, c := range []RoomConfig{cfg, fixed} {
			c.NewUsersPerMinute = 60
			g, p := openPlugged(t, c)
			v := g.visitor()
			v.at("/pay/")
			next, _ := g.kill(p, 10*time.Second)
			v.g = next
			time.Sleep(9 * time.Minute)
			if w := next.visitor(); w.at("/") {
				t.Error("the slot was given away")
			}
			if !v.at("/pay/") {
				t.Error("thrown out by a kill")
			}
			next.stop()
			<-next.done
		}
	})
	bubble(t, "grace is taken back and given while people are inside", func(t *testing.T) {
		g := openGate(t, cfg)
		v := g.visitor()
		v.at("/pay/")
		for _, grace := range []Grace{{}, cfg.Grace, {}} {
			if err := g.again(func(c *RoomConfig) { c.Grace = grace }); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				time.Sleep(time.Second)
				if !v.at("/pay/") {
					t.Fatal("thrown out")
				}
				if g.visitor().at("/") {
					t.Fatal("two")
				}
			}
		}
	})
}
