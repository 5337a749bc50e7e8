package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/store"
)

func TestALiveChangeSurvivesARestart(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"total_active_users": "3", "message": "Live"})
	p.change("shop", map[string]string{"message": "Alive"})
	p.stop()
	p.start()
	st := p.status("shop")
	live := p.live("shop")
	if st.TotalActiveUsers != 3 || live == nil || live.Pairs["message"] != "Alive" || live.By != "a test" ||
		len(live.Pairs) != 2 {
		t.Fatalf("%+v %+v", st, live)
	}
	if !strings.Contains(p.log.String(), "live changes in force") {
		t.Error("not told")
	}
	for range 3 {
		get(t, p.visitors+"/", "")
	}
	if b := get(t, p.visitors+"/", ""); b.StatusCode != 503 || !strings.Contains(b.body, "Alive") {
		t.Errorf("%d %s", b.StatusCode, b.body)
	}
	p.reload()
	if p.status("shop").TotalActiveUsers != 1 || p.live("shop") != nil {
		t.Error("a reload did not drop it")
	}
	p.stop()
	p.start()
	if p.status("shop").TotalActiveUsers != 1 || p.live("shop") != nil {
		t.Error("what a reload has dropped came back")
	}
}

func TestALiveChangeIsDroppedWithTheFileItWasMadeFor(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"total_active_users": "3"})
	p.stop()
	p.write(strings.Replace(shop, "name: shop", "name: shop, title: New", 1))
	p.start()
	if n := p.status("shop").TotalActiveUsers; n != 1 {
		t.Errorf("the limit is %d", n)
	}
	if log := p.log.String(); !strings.Contains(log, "live changes dropped") ||
		!strings.Contains(log, "total_active_users") {
		t.Errorf("not told: %s", log)
	}
	p.stop()
	p.write(shop)
	p.start()
	if n := p.status("shop").TotalActiveUsers; n != 1 {
		t.Errorf("it came back with the old file: %d", n)
	}
}

func TestALiveChangeBackToTheFileIsNone(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"closed": "true", "hold": "1h"})
	p.change("shop", map[string]string{"closed": "false"})
	if live := p.live("shop"); live == nil || live.Pairs["closed"] != "" || live.Pairs["hold"] != "1h" {
		t.Errorf("%+v", live)
	}
	p.change("shop", map[string]string{"hold": "5m"})
	if live := p.live("shop"); live != nil {
		t.Errorf("%+v", live)
	}
	// hold alone would take hold_phone along: both must stay.
	p.change("shop", map[string]string{"hold": "1h", "hold_phone": "15m"})
	if live := p.live("shop"); live == nil || live.Pairs["hold_phone"] != "15m" {
		t.Errorf("%+v", live)
	}
}

func TestALiveChangeOfTwoKeysIsAllOrNothing(t *testing.T) {
	p := run(t, shop)
	_, err := p.s.Change(t.Context(), "shop", map[string]string{"message": "x", "hold": "1s"}, "")
	if len(config.Faults(err)) != 1 || p.live("shop") != nil {
		t.Errorf("%v %+v", err, p.live("shop"))
	}
}

// A failing store fails as told, else it is a real one.
type failing struct {
	store.Store
	mu  sync.Mutex
	bad bool // nothing is written
	lie bool // what is written is said not to be
}

func (f *failing) fail(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad = yes
}

func (f *failing) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bad {
		return 0, errors.New("disk full")
	}
	if f.lie {
		f.Store.CompareAndSwap(ctx, key, revision, value)
		return 0, errors.New("no answer")
	}
	return f.Store.CompareAndSwap(ctx, key, revision, value)
}

func TestWhatCannotBeWrittenIsNotInForce(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"total_active_users": "2"})
	f := &failing{Store: p.s.node.Records}
	p.s.turn.Lock()
	p.s.node.Records = f
	p.s.turn.Unlock()
	f.fail(true)
	_, err := p.s.Change(t.Context(), "shop", map[string]string{"total_active_users": "3"}, "")
	if err == nil || p.status("shop").TotalActiveUsers != 2 ||
		p.live("shop").Pairs["total_active_users"] != "2" {
		t.Errorf("%v: the limit is %d", err, p.status("shop").TotalActiveUsers)
	}
	p.write(strings.Replace(shop, "users: 1,", "users: 9,", 1) +
		"  - {name: tea, path: /tea, origin: ORIGIN, " + limits + "}\n")
	if _, err := p.s.Reload(t.Context()); err == nil || p.status("shop").TotalActiveUsers != 2 {
		t.Errorf("reload: %v: the limit is %d", err, p.status("shop").TotalActiveUsers)
	}
	if get(t, p.operators+"/v1/rooms/tea", "").StatusCode != 404 || p.live("shop") == nil {
		t.Error("half a reload is in force")
	}
	f.fail(false)
	p.reload()
	if p.status("shop").TotalActiveUsers != 9 || get(t, p.visitors+"/tea", "").StatusCode != 200 {
		t.Error("the store is back, and the reload is not in force")
	}
}

// A write that was not confirmed may have happened. To say that it failed, and
// let it come to light at the next start, would be worse than either.
func TestALiveChangeWhoseWriteWasNotConfirmed(t *testing.T) {
	p := run(t, shop)
	f := &failing{Store: p.s.node.Records, lie: true}
	p.s.turn.Lock()
	p.s.node.Records = f
	p.s.turn.Unlock()
	p.change("shop", map[string]string{"total_active_users": "3"})
	if n := p.status("shop").TotalActiveUsers; n != 3 {
		t.Errorf("the limit is %d", n)
	}
	p.stop()
	p.start()
	if n := p.status("shop").TotalActiveUsers; n != 3 {
		t.Errorf("after a restart the limit is %d", n)
	}
}

func TestADamagedLiveRecordIsDropped(t *testing.T) {
	for _, damaged := range []string{"{", `"x"`, `{"fingerprint":"","pairs":{"hold":"1h"}}`} {
		p := run(t, shop)
		if _, err := p.s.node.Records.CompareAndSwap(t.Context(), "live.shop", 0, []byte(damaged)); err != nil {
			t.Fatal(err)
		}
		p.stop()
		p.start()
		if p.live("shop") != nil || !strings.Contains(p.log.String(), "live changes dropped") {
			t.Errorf("%s: %+v\n%s", damaged, p.live("shop"), p.log.String())
		}
	}
}

func TestLiveRecordOnDisk(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"hold": "1h"})
	value, _, err := p.s.node.Records.Load(t.Context(), "live.shop")
	var rec map[string]any
	if err != nil || json.Unmarshal(value, &rec) != nil || len(rec) != 4 ||
		fmt.Sprint(rec["pairs"]) != "map[hold:1h]" || rec["by"] != "a test" {
		t.Errorf("%s %v", value, err)
	}
}
