//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// What newcomers cost, measured from outside (the issue "Cluster").
const (
	insideP50  = 3 * time.Millisecond
	insideP99  = 25 * time.Millisecond
	warmP99    = time.Millisecond
	costFactor = 1.3
)

// TestLatency: newcomers arrive steadily at three nodes, at under half of the limit,
// then close to it. Nobody asks anybody in the first, one round trip at most in the
// second.
func TestLatency(t *testing.T) {
	st := newStage(t, quiet(2000, 60_000, 10*time.Second))
	drive := func(perSecond int, warm, measured time.Duration) (times, base []time.Duration, asked, n int) {
		st.steady(perSecond, warm)
		before := st.asked()
		times, base = st.steady(perSecond, measured)
		return times, base, st.asked() - before, len(times)
	}
	times, base, asked, n := drive(80, 12*time.Second, 10*time.Second)
	figures := []judge.Figure{
		most("below half: newcomers who asked the counter", asked, 0, "of %d", n),
		// Beside requests that pass uncounted: what is left is the time inside the worker.
		most("below half: 99 % of newcomers, µs more than others", int((at(times, 99) - at(base, 99)).Microseconds()),
			int(warmP99.Microseconds()), "%v, others %v", at(times, 99), at(base, 99)),
	}
	times, _, asked, n = drive(185, 12*time.Second, 15*time.Second)
	figures = append(figures,
		most("near the limit: newcomers who asked the counter", asked, n, "of %d", n),
		most("near the limit: half of newcomers, µs", int(at(times, 50).Microseconds()),
			int(insideP50.Microseconds()), "origin and way included"),
		most("near the limit: 99 % of newcomers, µs", int(at(times, 99).Microseconds()),
			int(insideP99.Microseconds()), "origin and way included"),
	)
	st.tell(figures)
}

// TestCost: the processor time of an admission, of all processes, when all come to one
// of four nodes and when they are spread over them. Beside it, that of a request that
// passes uncounted: what several processes cost more than one on this machine.
func TestCost(t *testing.T) {
	st := newStage(t, quiet(10_000_000, 100_000_000, 10*time.Second))
	st.node("w1")
	st.again("w1")
	const d = 6 * time.Second
	one, four := st.flood(st.nodes[:1], "/", d), st.flood(st.nodes, "/", d)
	pass1, pass4 := st.flood(st.nodes[:1], "/favicon.ico", d), st.flood(st.nodes, "/favicon.ico", d)
	total, pass := float64(four)/float64(one), float64(pass4)/float64(pass1)
	st.tell([]judge.Figure{
		show("processor time of an admission at four nodes, % of that at one", 100*total,
			"%v and %v", four, one),
		show("the same of a request that passes uncounted", 100*pass, "%v and %v", pass4, pass1),
		most("what admissions cost more at four nodes than other requests do, %", int(100*total/pass),
			int(100*costFactor), ""),
	})
}

// steady sends so many newcomers a second to the nodes in turn, and beside each a
// request that passes uncounted. It gives how long they took.
func (st *stage) steady(perSecond int, d time.Duration) (times, base []time.Duration) {
	st.t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: askTimeout}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := range perSecond * int(d.Seconds()) {
		<-tick.C
		n := st.nodes[i%len(st.nodes)]
		wg.Go(func() {
			took, err := fetch(client, n.public, "/")
			other, err2 := fetch(client, n.public, "/favicon.ico")
			mu.Lock()
			defer mu.Unlock()
			if err != nil || err2 != nil {
				st.t.Errorf("newcomer %d at %s: %v, %v", i, n.name, err, err2)
				return
			}
			times, base = append(times, took), append(base, other)
		})
	}
	wg.Wait()
	return times, base
}

// flooded is how many newcomers a second come in TestCost. Chosen: well below what one
// node takes on two processors, so that the rate is the same in both runs.
const flooded = 2500

// flood lets newcomers come to nodes, and gives the processor time of one.
func (st *stage) flood(nodes []*node, path string, d time.Duration) time.Duration {
	st.t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: askTimeout}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	run := func(d time.Duration) (n int) {
		end := time.Now().Add(d)
		for i := range 16 {
			wg.Go(func() {
				tick := time.NewTicker(16 * time.Second / flooded)
				defer tick.Stop()
				for k := i; time.Now().Before(end); k++ {
					<-tick.C
					if _, err := fetch(client, nodes[k%len(nodes)].public, path); err != nil {
						st.t.Error(err)
						return
					}
					mu.Lock()
					n++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return n
	}
	run(3 * time.Second) // shares grow
	before := st.processorTime()
	n := run(d)
	return (st.processorTime() - before) / time.Duration(max(1, n))
}

func fetch(client *http.Client, addr, path string) (time.Duration, error) {
	began := time.Now()
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode >= 500 {
		return 0, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return time.Since(began), nil
}

// asked is how many newcomers the nodes had to ask the counter for.
func (st *stage) asked() (sum int) {
	st.t.Helper()
	for _, n := range st.nodes {
		resp, err := http.Get("http://" + n.admin + "/v1/rooms/" + room)
		if err != nil {
			st.t.Fatal(err)
		}
		var x struct {
			Totals struct {
				Asked int `json:"newcomers_asked"`
			} `json:"totals"`
		}
		err = json.NewDecoder(resp.Body).Decode(&x)
		resp.Body.Close()
		if err != nil {
			st.t.Fatal(err)
		}
		sum += x.Totals.Asked
	}
	return sum
}

// processorTime is that of all nodes so far (proc(5), /proc/pid/stat, fields 14 and 15).
func (st *stage) processorTime() (sum time.Duration) {
	st.t.Helper()
	for pid := range st.pids() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			st.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		var user, system int64
		fields := strings.Fields(rest)
		fmt.Sscan(fields[11], &user)
		fmt.Sscan(fields[12], &system)
		sum += time.Duration(user+system) * time.Second / 100 // USER_HZ is 100 on Linux
	}
	return sum
}
