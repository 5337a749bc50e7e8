//go:build edges

package edges

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

// cost is how many times the CPU of nginx and headgate for a request of a visitor inside may be
// that of nginx and a handler of net/http that answers 204 at once. Measured: 1.36; half as much more is a
// fault.
const cost = 2.0

// TestCost: a request of a visitor inside, through nginx and auth_request, once with headgate and
// once with the smallest handler, in turns. It prints both.
func TestCost(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ok")
	}))
	defer origin.Close()
	o := strings.TrimPrefix(origin.URL, "http://")
	nginx := &kinds[0]
	w := nginx.open(t, o, "total_active_users: 100, new_users_per_minute: 100, session_duration: 1h")
	inside := browser{w: w}
	for cookies := true; cookies; { // a browser soon has the whole pass, and no more cookies for 30 s
		res, _ := inside.ask(t, "GET", "/")
		if cookies = len(res.Header["Set-Cookie"]) > 0; cookies {
			<-time.After(100 * time.Millisecond)
		}
	}
	cookie := inside.jar.String()

	plain := &world{addr: loopback.Free(t)}
	least := loopback.Free(t)
	handler := exec.Command(os.Args[0])
	handler.Env = append(os.Environ(), "LEAST_HANDLER="+least)
	if err := handler.Start(); err != nil {
		t.Fatal(err)
	}
	defer handler.Process.Kill()
	nginx.start(t, plain.addr, places{least, least, least, o, nil})

	var with, without float64
	for range 6 {
		with += perRequest(t, w.addr, cookie, w.headgate.PID, masterOf(t, w.addr))
		without += perRequest(t, plain.addr, cookie, handler.Process.Pid, masterOf(t, plain.addr))
	}
	t.Logf("CPU of nginx and the decider for a request: %.1f µs with headgate, %.1f µs with a handler that "+
		"answers 204: %.2f times", with/6, without/6, with/without)
	if with > cost*without {
		t.Errorf("%.2f times, at most %.1f", with/without, cost)
	}
}

// serveLeast is the handler of TestCost, in a process of its own.
func serveLeast(addr string) int {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}))
	}
	log.Print(err)
	return 1
}

// perRequest sends requests over 16 connections and returns the CPU time of the processes for each,
// in microseconds.
func perRequest(t *testing.T, addr, cookie string, pids ...int) float64 {
	t.Helper()
	const each, clients = 500, 16
	before := ticks(t, pids)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			for range each {
				r, err := http.NewRequest("GET", "http://"+addr+"/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Host = "shop.example"
				r.Header.Set("Cookie", cookie)
				res, err := tr.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					t.Errorf("status %d", res.StatusCode)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(ticks(t, pids)-before) * 1e4 / (each * clients) // a tick is 10 ms
}

// ticks returns the CPU time of processes and their children, in hundredths of a second.
func ticks(t *testing.T, pids []int) (n int) {
	t.Helper()
	for _, pid := range pids {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		for _, p := range append(strings.Fields(string(children)), strconv.Itoa(pid)) {
			b, err := os.ReadFile("/proc/" + p + "/stat")
			if err != nil {
				t.Fatal(err)
			}
			fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
			for _, k := range []int{11, 12} { // utime and stime, proc(5)
				x, err := strconv.Atoi(fields[k])
				if err != nil {
					t.Fatal(err)
				}
				n += x
			}
		}
	}
	return n
}

// masterOf returns the nginx that listens at addr, by its file of the process id.
func masterOf(t *testing.T, addr string) int {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(t.TempDir()), "*", "nginx.conf"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "listen "+addr+";") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(file), "pid"))
		pid, err2 := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil && err2 == nil {
			return pid
		}
	}
	t.Fatalf("no nginx at %s", addr)
	return 0
}
