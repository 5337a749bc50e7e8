package quota

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/internal/store"
)

// The number with which a process proves its loans is in no message that all processes receive.
// With it another process could return the units that this one holds, and the host would lend them
// twice.
func TestNoBorrowerIsNamedToAll(t *testing.T) { virtual.Test(t, testNoBorrowerIsNamedToAll) }

func testNoBorrowerIsNamedToAll(t *testing.T) {
	g := newGroup(t)
	m := g.start("n1", true)
	defer m.stop()
	bus := store.NewBus(g.connect())
	heard := make(chan []byte, 1)
	stop, err := bus.Subscribe(m.cfg.Prefix+"recall", func(msg []byte) {
		select {
		case heard <- msg:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := bus.SelfTest(t.Context(), "flush"); err != nil { // it receives messages
		t.Fatal(err)
	}
	m.recall(m.Client.who, appendPlaces(nil, []place{{"db", "bob"}}))
	msg := <-heard
	if who := binary.LittleEndian.AppendUint64(nil, m.Client.who); bytes.Contains(msg, who) {
		t.Error("a recall names it")
	}
	if m.Client.who == m.cfg.Members.Self().Life {
		t.Error("a heartbeat names it")
	}
	if got := binary.LittleEndian.Uint64(msg); got != public(m.Client.who) || got == public(m.Client.who+1) {
		t.Error("the recall reaches nobody")
	}
}

func FuzzChart(f *testing.F) {
	c := &ShardMap{rev: 3}
	c.Shards[1] = Assignment{Host: "n1/1", Standby: "n2/2"}
	f.Add(c.told())
	f.Add([]byte(`{"Rev":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := heardChart(b)
		if c == nil {
			return
		}
		for i := range Shards {
			c.host(byte(i))
		}
		again := heardChart(c.told())
		if again == nil || again.rev != c.rev || again.Shards != c.Shards {
			t.Errorf("%q is read again as %v", b, again)
		}
	})
}

func FuzzUsesAsk(f *testing.F) {
	f.Add([]byte(`{"limit":"db","shard":3,"from":0,"count":10}`))
	f.Add([]byte(`{"from":-1,"count":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		rules := func(string) *Definition { return nil }
		h := &Host{ledger: newLedger(func() time.Duration { return 0 }, rules, nil)}
		got := h.tellUses(t.Context(), b)
		var told usesTold
		if got != nil && json.Unmarshal(got, &told) != nil {
			t.Errorf("%q: answered %q", b, got)
		}
	})
}
