package server

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/folder"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

// sealer is the number of the key that a cookie was sealed with.
func sealer(t *testing.T, cookie string) byte {
	t.Helper()
	_, value, _ := strings.Cut(cookie, "=")
	raw, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(raw) < 2 {
		t.Fatalf("%q: %v", cookie, err)
	}
	return raw[1]
}

// A reload that has read the keys before a rotation must not put them into force
// after it: what the new key has sealed by then nobody could open.
func TestARotationBesideAReloadOfTheKeys(t *testing.T) {
	p := run(t, shop)
	k := p.s.node
	read, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := k.UseKeys(func() ([]folder.SealingKey, error) {
			keys, err := k.Folder.Keys()
			close(read)
			<-goOn
			return keys, err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-read
	rotated := make(chan struct{})
	wg.Go(func() {
		defer close(rotated)
		if _, err := k.RotateKeys(time.Now()); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-rotated: // it did not wait
	case <-time.After(200 * time.Millisecond):
	}
	close(goOn)
	wg.Wait()
	keys, err := k.Folder.Keys()
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	if got := sealer(t, get(t, p.visitors+"/", "").cookie); got != keys[0].ID {
		t.Errorf("key %d seals, the newest is %d", got, keys[0].ID)
	}
}

// patch changes a room as an operator does.
func (p *process) patch(room, body string) (status int, text string) {
	p.t.Helper()
	secret, _, err := api.CreateToken(p.s.dataFolder(), api.Token{Scopes: []string{"write"}})
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(p.t.Context(), "PATCH", p.operators+"/v1/rooms/"+room,
		strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// A cut store writes once more, then its engine is gone.
type cut struct {
	store.Store
	engine interface{ Close() }
}

func (c *cut) CompareAndSwap(ctx context.Context, key string, rev uint64, v []byte) (uint64, error) {
	defer c.engine.Close()
	return c.Store.CompareAndSwap(ctx, key, rev, v)
}

// The live record is written, then the disk fails, and it cannot be taken back: to
// say that nothing has changed would be a lie from the next start on.
func TestALiveChangeThatIsLeftBehindSaysSo(t *testing.T) {
	p := run(t, shop)
	p.s.turn.Lock()
	p.s.node.Records = &cut{p.s.node.Records, p.s.node.Engine}
	p.s.turn.Unlock()
	status, body := p.patch("shop", `{"total_active_users": 3}`)
	if status != 500 || !strings.Contains(body, `"half_done"`) ||
		!strings.Contains(body, "comes into force at the next start") {
		t.Errorf("%d %s", status, body)
	}
	if n := p.status("shop").TotalActiveUsers; n != 1 || p.live("shop") != nil {
		t.Errorf("the limit is %d", n)
	}
	p.stop()
	p.start()
	if n := p.status("shop").TotalActiveUsers; n != 3 {
		t.Errorf("after the next start the limit is %d", n)
	}
}

// The same for a reload, which fails after it has forgotten the live changes.
func TestAReloadThatIsLeftBehindSaysSo(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"message": "Live"})
	p.s.turn.Lock()
	p.s.node.Records = &cut{p.s.node.Records, p.s.node.Engine}
	p.s.turn.Unlock()
	keys := p.dir + "/data/keys"
	if err := os.Chmod(keys, 0o755); err != nil { // refused: others may read them
		t.Fatal(err)
	}
	_, err := p.s.Reload(t.Context())
	if l, ok := errors.AsType[*api.Leftover](err); !ok || l.Do == "" {
		t.Errorf("%v", err)
	}
	if live := p.live("shop"); live == nil {
		t.Error("half a reload is in force")
	}
	if err := os.Chmod(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	p.stop()
	p.start()
	if live := p.live("shop"); live != nil {
		t.Errorf("it was true after all: %+v", live)
	}
}

// damage makes the record of a room unreadable while headgate is stopped.
func (p *process) damage(room string) {
	p.t.Helper()
	k, err := node.Open(p.t.Context(), node.Options{Log: p.s.log}, &config.Config{Data: p.dir + "/data"})
	if err != nil {
		p.t.Fatal(err)
	}
	defer k.Close()
	_, rev, err := k.Records.Load(p.t.Context(), "counter."+room)
	if err == nil {
		_, err = k.Records.CompareAndSwap(p.t.Context(), "counter."+room, rev, []byte("damaged"))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// One room whose record cannot be read does not stop the others from changing.
func TestADamagedRoomIsLeftAsItIs(t *testing.T) {
	const tea = "  - {name: tea, path: /tea, origin: ORIGIN, " + limits + "}\n"
	p := run(t, shop+tea)
	p.change("shop", map[string]string{"message": "Live"})
	p.stop()
	p.damage("shop")
	p.start()
	if st := p.status("shop"); st.Status != "damaged" {
		t.Fatalf("%+v", st)
	}
	p.write(strings.ReplaceAll(shop+tea, "users: 1,", "users: 7,"))
	for n := range 2 {
		got := p.reload()
		changed := []string{"tea"}
		if n > 0 {
			changed = []string{}
		}
		if !slices.Equal(got.Rooms.Changed, changed) || len(got.Dropped) > 0 {
			t.Errorf("%+v", got)
		}
	}
	if n := p.status("tea").TotalActiveUsers; n != 7 {
		t.Errorf("the limit of the good room is %d", n)
	}
	if n := p.status("shop").TotalActiveUsers; n != 1 || p.live("shop") == nil {
		t.Errorf("the damaged room was touched: %d", n)
	}
	if !strings.Contains(p.log.String(), `"room not reloaded: its record cannot be read" room=shop`) {
		t.Error("it is not named")
	}
	if status, body := p.patch("shop", `{"message": "x"}`); status != 409 ||
		!strings.Contains(body, `"room_damaged"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := p.patch("tea", `{"message": "x"}`); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	p.write("rooms:\n" + tea) // and it can go
	if got := p.reload(); !slices.Equal(got.Rooms.Removed, []string{"shop"}) {
		t.Errorf("%+v", got)
	}
}

// A heal used to end here for ever: the engine that it starts does not find a stream
// whose description was damaged meanwhile.
func TestAStreamThatIsGoneComesBackByItself(t *testing.T) {
	p := run(t, shop)
	inside := get(t, p.visitors+"/", "").cookie
	waits := get(t, p.visitors+"/", "").cookie
	p.change("shop", map[string]string{"message": "Live"})
	descriptions, _ := filepath.Glob(p.dir + "/data/engine/jetstream/*/streams/*/meta.*")
	for _, f := range descriptions {
		if err := os.WriteFile(f, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.s.node.Engine.Heal(io.ErrUnexpectedEOF)
	eventually(t, "made anew", func() bool {
		return strings.Contains(p.log.String(), "made anew from what is on the disk")
	})
	eventually(t, "written again", func() bool {
		_, err := p.s.Change(t.Context(), "shop", map[string]string{"total_active_users": "2"}, "")
		return err == nil
	})
	eventually(t, "let in", func() bool { return get(t, p.visitors+"/", waits).StatusCode == 200 })
	if r := get(t, p.visitors+"/", inside); r.StatusCode != 200 {
		t.Errorf("who was inside is not: %d", r.StatusCode)
	}
	if live := p.live("shop"); live == nil || live.Pairs["message"] != "Live" {
		t.Errorf("%+v", live)
	}
}
