package picture

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/ticket"
)

// The rush is chosen so that the picture is easy to follow.
const (
	visitors = 32
	limit    = 6
	stay     = 4 * time.Second
	poll     = 500 * time.Millisecond
	killedAt = 12 * time.Second
	downFor  = 2 * time.Second
)

// A visit is what one visitor saw, as times since the start.
type visit struct {
	arrived, entered, left time.Duration
	number                 uint64 // of its ticket; 0 before it has one
}

// A rush is a room, its visitors, and an origin that counts them.
type rush struct {
	t       *testing.T
	began   time.Time
	records *store.Memory
	keys    headgate.SealingKeys
	room    atomic.Pointer[http.Handler] // nil while the process is dead
	died    func()                       // from now on, its writes are lost
	stop    func()

	mu     sync.Mutex
	visits [visitors]visit
	inside map[string]bool
	most   int // visitors inside at once
}

// TestRush plays the picture: a process is killed while visitors wait. There are never more of them
// inside than the limit, nobody's number changes, and they enter in the order of their arrival.
func TestRush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rush{t: t, began: time.Now(), records: &store.Memory{}, inside: map[string]bool{},
			keys: headgate.SealingKeys{Current: 1, Keys: map[byte][32]byte{1: ticket.NewKey()}}}
		r.start()
		var crowd sync.WaitGroup
		for i := range visitors {
			crowd.Go(func() { r.visit(i) })
		}
		time.Sleep(killedAt)
		r.kill()
		time.Sleep(downFor)
		r.start()
		crowd.Wait()
		r.stop()
		if r.most != limit {
			t.Errorf("at most %d visitors were inside, want %d", r.most, limit)
		}
		for i, v := range r.visits {
			for _, w := range r.visits[:i] {
				if w.entered > v.entered+2*poll { // a called visitor enters with its next poll
					t.Errorf("%v was overtaken by %v", w, v)
				}
			}
		}
		draw(t, r.visits[:])
	})
}

// dying is a store that fails each write once its process is dead.
type dying struct {
	*store.Memory
	dead atomic.Bool
}

func (d *dying) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	if d.dead.Load() {
		return 0, context.Canceled
	}
	return d.Memory.CompareAndSwap(ctx, key, revision, value)
}

// start starts the process.
func (r *rush) start() {
	began, records := time.Now(), &dying{Memory: r.records}
	boot := func() time.Duration { return time.Since(began) + time.Hour }
	cfg := headgate.EngineConfig{Keys: r.keys, Exclusive: true, Boot: boot}
	cfg.Store = records
	engine, err := headgate.OpenEngine(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	room, err := headgate.OpenRoom(r.t.Context(), headgate.RoomConfig{
		Name: "shop", Engine: engine, Boot: boot,
		TotalActiveUsers: limit, NewUsersPerMinute: 600, NoSpread: true,
		PollMin: poll, PollMax: poll})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := engine.Run(ctx); err != nil && !records.dead.Load() {
			r.t.Error(err)
		}
	})
	running.Go(func() {
		if err := room.Run(ctx); err != nil && !records.dead.Load() {
			r.t.Error(err)
		}
	})
	handler := room.Handler(http.HandlerFunc(r.origin))
	r.room.Store(&handler)
	r.died = func() { records.dead.Store(true) }
	r.stop = func() { cancel(); running.Wait() }
}

// kill ends the process: what it wants to write from now on is lost.
func (r *rush) kill() {
	r.room.Store(nil)
	r.died()
	r.stop()
}

// origin counts who is inside, from the first answer to the last.
func (r *rush) origin(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := q.Header.Get("X-Visitor")
	r.inside[name] = true
	r.most = max(r.most, len(r.inside))
	if q.URL.Path == "/bye" {
		delete(r.inside, name)
		w.Header().Set("Headgate-Command", "revoke")
	}
	w.Header().Set("X-Inside", "yes")
}

// visit comes, waits as it is told, stays for a while, and leaves.
func (r *rush) visit(i int) {
	b := browser{rush: r, name: fmt.Sprint(i)}
	time.Sleep(arrival(i))
	v := visit{arrived: time.Since(r.began)}
	for waits := false; ; {
		a := b.fetch("/", waits)
		if a.inside {
			break
		}
		if a.Number > 0 && v.number > 0 && a.Number != v.number {
			r.t.Errorf("visitor %d had number %d and has %d", i, v.number, a.Number)
		}
		v.number = max(v.number, a.Number)
		if waits = a.State != headgate.StateCalled; waits {
			time.Sleep(time.Duration(max(0.1, a.After) * float64(time.Second)))
		}
	}
	v.entered = time.Since(r.began)
	time.Sleep(stay)
	for !b.fetch("/bye", false).inside { // the process may be dead
		time.Sleep(100 * time.Millisecond)
	}
	v.left = time.Since(r.began)
	r.mu.Lock()
	r.visits[i] = v
	r.mu.Unlock()
}

// arrival returns when a visitor comes: a few come one by one, the others at once.
func arrival(i int) time.Duration {
	if i < 4 {
		return time.Duration(1+i) * 500 * time.Millisecond
	}
	return 2500*time.Millisecond + time.Duration(i-4)*120*time.Millisecond
}

// A browser keeps one cookie.
type browser struct {
	rush   *rush
	name   string
	cookie *http.Cookie
}

// An answer is what the page's script reads.
type answer struct {
	State  headgate.State `json:"state"`
	Number uint64         `json:"number"`
	After  float64        `json:"poll_after_seconds"`
	inside bool
}

// fetch sends one request. While the process is dead, the answer is empty.
func (b *browser) fetch(path string, poll bool) (a answer) {
	h := b.rush.room.Load()
	if h == nil {
		return a
	}
	q := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, http.NoBody)
	q.Header.Set("X-Visitor", b.name)
	q.Header.Set("Accept", "application/json")
	if poll {
		q.Header.Set(headgate.PollHeader, "1")
	}
	if b.cookie != nil {
		q.AddCookie(b.cookie)
	}
	w := httptest.NewRecorder()
	(*h).ServeHTTP(w, q)
	if b.rush.room.Load() != h {
		return a // killed before it answered
	}
	for _, c := range w.Result().Cookies() {
		b.cookie = c
	}
	if a.inside = w.Header().Get("X-Inside") != ""; a.inside {
		return a
	}
	all := struct{ Headgate *answer }{&a}
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		b.rush.t.Errorf("%d %v: %s", w.Code, err, w.Body)
	}
	return a
}
