//go:build soak

package kills

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

var million = flag.Int("million", 1_000_000, "how many wait in TestMillion")

// The room of TestMillion, and how it is filled.
const (
	holders   = 100 // inside when headgate is killed
	leavers   = 20  // of them leave as soon as it is back
	heads     = 200 // of the lowest tickets poll
	pipelines = 64  // connections that join
	pipeDepth = 64  // requests on the way on each
)

// A waiter is a ticket that is looked at again after the restart.
type waiter struct {
	number   uint64
	position int64
	cookie   string
}

// TestMillion kills headgate with a million waiting. It is ready again within
// 3 s, calls the lowest ticket within 5 s more, and each of a sample has its
// place.
func TestMillion(t *testing.T) {
	origin, err := judge.StartOrigin()
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	text := fmt.Sprintf("rooms:\n  - name: main\n    origin: %s\n    total_active_users: %d\n"+
		"    new_users_per_minute: 60000\n    session_duration: 10m\n    hold: 1h\n",
		origin.URL, holders)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	st := &stage{t: t, http: &http.Transport{MaxIdleConnsPerHost: heads, DisableCompression: true}}
	st.proc = newProcess(t, "--config", file)
	st.url = "http://" + st.proc.public + "/"
	st.proc.start()

	var inside []string
	for i := range holders {
		a, err := st.send(t.Context(), askJoin, fmt.Sprint(i), "")
		if err != nil || a.state != "" || a.cookie == nil {
			t.Fatalf("visitor %d was told %+v: %v", i, a, err)
		}
		inside = append(inside, *a.cookie)
	}
	from := time.Now()
	line, issued := st.joinAll(*million)
	took := time.Since(from)

	st.proc.freeze()
	st.proc.kill()
	from = time.Now()
	st.proc.start()
	ready := time.Since(from)
	from = time.Now()
	for i, cookie := range inside[:leavers] {
		if a, err := st.send(t.Context(), askLeave, fmt.Sprint(i), cookie); err != nil || a.state != "" {
			t.Errorf("visitor %d, inside before, was told %+v: %v", i, a, err)
		}
	}
	first, number := st.firstCall(line)
	lost, risen := st.standing(line)
	rss := 0.0
	if text, err := get(t.Context(), "http://"+st.proc.admin+"/metrics"); err == nil {
		rss, _ = judge.Metric(text, "process_resident_memory_bytes")
	}
	figures := []judge.Figure{
		least("tickets issued", issued, *million, "%.0f a second",
			float64(*million)/took.Seconds()),
		most("start to ready, ms", int(ready.Milliseconds()), 3000, ""),
		most("ready to the first call, ms", int(first.Sub(from).Milliseconds()), 5000,
			"ticket %d", number),
		most("lower tickets that wait when the first call is told",
			slices.IndexFunc(line, func(w waiter) bool { return w.number == number }), leavers-1,
			"%d slots were free at once", leavers),
		most("tickets lost, of a sample", lost, 0, "of %d", len(line)),
		most("places shown further back than before", risen, 0, "of %d", len(line)),
		{Name: "resident memory, MB", Reach: rss / 1e6, Show: true},
	}
	t.Logf("\n%s", judge.Table(figures))
	for _, f := range figures {
		if !f.OK() {
			t.Errorf("%s: %.4g, limit %.4g %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
}

// joinAll puts n visitors in line, and returns the lowest tickets and each
// thousandth, in order.
func (st *stage) joinAll(n int) (line []waiter, issued int) {
	st.t.Helper()
	var mu sync.Mutex
	kept := map[uint64]waiter{}
	var left, joined atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range pipelines {
		wg.Go(func() {
			err := st.joinMany(&left, func(w waiter) {
				joined.Add(1)
				if w.number < 2*heads || w.number%1000 == 0 {
					mu.Lock()
					kept[w.number] = w
					mu.Unlock()
				}
			})
			if err != nil {
				st.t.Errorf("join: %v", err)
			}
		})
	}
	wg.Wait()
	for number := uint64(0); len(line) < len(kept); number++ {
		if w, ok := kept[number]; ok {
			line = append(line, w)
		}
	}
	if len(line) <= heads {
		st.t.Fatalf("only %d of the tickets are known", len(line))
	}
	return line, int(joined.Load())
}

// joinMany joins on one connection, many requests on the way at a time.
func (st *stage) joinMany(left *atomic.Int64, keep func(waiter)) error {
	conn, err := net.Dial("tcp", st.proc.public)
	if err != nil {
		return err
	}
	defer conn.Close()
	request := "GET / HTTP/1.1\r\nHost: " + st.proc.public + "\r\nAccept: application/json\r\n\r\n"
	answers := bufio.NewReaderSize(conn, 64<<10)
	for {
		batch := min(pipeDepth, int(left.Add(-pipeDepth))+pipeDepth)
		if batch <= 0 {
			return nil
		}
		if _, err := io.WriteString(conn, strings.Repeat(request, batch)); err != nil {
			return err
		}
		for range batch {
			w, err := readJoin(answers)
			switch {
			case err != nil:
				return err
			case w.number == 0: // no number could be issued in time: ask again
				left.Add(1)
			default:
				keep(w)
			}
		}
	}
}

func readJoin(answers *bufio.Reader) (w waiter, err error) {
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		return w, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return w, err
	}
	var doc struct {
		Headgate struct {
			State    string `json:"state"`
			Number   uint64 `json:"number"`
			Position int64  `json:"position"`
		} `json:"headgate"`
	}
	err = json.Unmarshal(body, &doc)
	if err != nil || doc.Headgate.State != stateWaiting {
		return w, fmt.Errorf("status %d: %.300s", resp.StatusCode, body)
	}
	cookie, _, _ := strings.Cut(resp.Header.Get("Set-Cookie"), ";")
	return waiter{doc.Headgate.Number, doc.Headgate.Position, cookie}, nil
}

// firstCall lets the lowest tickets poll as told until one is called.
func (st *stage) firstCall(line []waiter) (at time.Time, number uint64) {
	ctx, stop := context.WithTimeout(st.t.Context(), 30*time.Second)
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, w := range line[:heads] {
		wg.Go(func() {
			for ctx.Err() == nil {
				a, err := st.send(ctx, askPoll, "", w.cookie)
				if err == nil && a.state == stateCalled {
					mu.Lock()
					defer mu.Unlock()
					if number == 0 {
						at, number = time.Now(), w.number
						stop()
					}
					return
				}
				until(ctx, time.Now().Add(max(a.after, 10*time.Millisecond)))
			}
		})
	}
	wg.Wait()
	if number == 0 {
		st.t.Error("nobody was called within 30 s")
		at, number = time.Now(), line[0].number
	}
	return at, number
}

// standing asks for every ticket of the sample that nobody has asked for yet.
func (st *stage) standing(line []waiter) (lost, risen int) {
	for _, w := range line[heads:] {
		a, err := st.send(st.t.Context(), askPoll, "", w.cookie)
		switch {
		case err != nil || a.number != w.number || a.state != stateWaiting:
			lost++
			st.t.Logf("ticket %d was told %+v: %v", w.number, a, err)
		case a.position > w.position:
			risen++
			st.t.Logf("ticket %d has place %d after %d", w.number, a.position, w.position)
		}
	}
	return lost, risen
}
