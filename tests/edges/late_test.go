//go:build edges

package edges

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Times within which 99 % of the decisions for visitors inside are made on a machine at half load: the
// aim, and how many times that of the smallest handler in the same run is no fault on a busy machine.
const (
	soon     = time.Millisecond
	mostLate = 3
)

// A drive is what a driver is to do: to ask over a few connections, each at its own instants, evenly
// spread. A rate of 0 means as fast as answers come.
type drive struct {
	Wire, Addr string
	Headers    map[string]string
	Rate       float64 // questions a second
	Asked      int
}

// A driven says within which time 99 % of the questions were sent after they were due, of the answers
// came after their questions were sent, and after they were due: the driver's part, the decision, and both.
type driven struct {
	Late, Answer, Both float64 // milliseconds
}

// connections is how many the driver has: on HTTP/1.1 each has one question at a time.
const connections = 8

// TestHalfLoad: a driver, a process of its own, asks about requests of a visitor inside, at a rate at
// which it and headgate use half of the CPU. It prints how late 99 % of the answers are at most, and the
// same of the smallest handlers at the same rate, in turns.
func TestHalfLoad(t *testing.T) {
	for _, x := range questions(t) {
		d := drive{Wire: x.name, Headers: x.headers, Addr: x.at, Asked: 20000}
		each := 0.0
		for range 2 { // the first warms up
			before := cpuTime(t, x.headgate)
			_, own := d.run(t)
			each = (cpuTime(t, x.headgate) - before + own).Seconds() / float64(d.Asked)
		}
		d.Rate = float64(runtime.NumCPU()) / 2 / each
		d.Asked = int(2 * d.Rate)
		other := d
		other.Addr = x.other
		// The least of several: what other processes take only adds to it.
		var with, without driven
		for i := range 6 {
			a, _ := d.run(t)
			b, _ := other.run(t)
			if with, without = with.least(a), without.least(b); i == 0 {
				with, without = a, b
			}
		}
		if err := x.with(); err != nil {
			t.Errorf("%s: a visitor inside is not let in: %v", x.name, err)
		}
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("99 %% of the questions by %s at half load, %.0f a second: headgate answers within %.3f ms, "+
			"%.3f ms after they are due, sent %.3f ms late; the smallest handler within %.3f ms, %.3f ms, "+
			"sent %.3f ms late; load %s", x.name, d.Rate, with.Answer, with.Both, with.Late,
			without.Answer, without.Both, without.Late, load)
		if most := max(soon.Seconds()*1e3, mostLate*without.Answer); with.Answer > most {
			t.Errorf("%s: %.3f ms, at most %.3f ms", x.name, with.Answer, most)
		}
	}
}

func (a driven) least(b driven) driven {
	return driven{min(a.Late, b.Late), min(a.Answer, b.Answer), min(a.Both, b.Both)}
}

// run starts a driver, and returns what it measures and the CPU time that it takes.
func (d drive) run(t *testing.T) (got driven, cpu time.Duration) {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var fault bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), "DRIVE="+string(text)), &fault
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v %s", err, &fault)
	}
	return got, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// serveDrive is the driver. It sleeps in a thread for each connection: the timers of Go are up to 1 ms late.
func serveDrive(text string) int {
	var d drive
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		log.Print(err)
		return 1
	}
	asks := make([]func() error, connections)
	for i := range asks {
		asks[i] = d.asker()
		if err := asks[i](); err != nil {
			log.Print(err)
			return 1
		}
	}
	var wg sync.WaitGroup
	var all [connections][3][]float64
	start := time.Now().Add(10 * time.Millisecond)
	for i, ask := range asks {
		wg.Go(func() {
			runtime.LockOSThread()
			for k := i; k < d.Asked; k += connections {
				due := start
				if d.Rate > 0 {
					due = start.Add(time.Duration(float64(k) / d.Rate * 1e9))
					sleep(time.Until(due))
				}
				sent := time.Now()
				if err := ask(); err != nil {
					log.Fatal(err)
				}
				end := time.Now()
				for j, took := range []time.Duration{sent.Sub(due), end.Sub(sent), end.Sub(due)} {
					all[i][j] = append(all[i][j], took.Seconds()*1e3)
				}
			}
		})
	}
	wg.Wait()
	var most [3]float64
	for j := range most {
		var took []float64
		for i := range all {
			took = append(took, all[i][j]...)
		}
		slices.Sort(took)
		most[j] = took[len(took)*99/100]
	}
	text2, _ := json.Marshal(driven{most[0], most[1], most[2]})
	fmt.Println(string(text2))
	return 0
}

// sleep sleeps with the precision of the kernel.
func sleep(d time.Duration) {
	for left := unix.NsecToTimespec(int64(d)); d > 0 && unix.Nanosleep(&left, &left) == unix.EINTR; {
	}
}

// asker returns a function that asks over a connection of its own.
func (d *drive) asker() func() error {
	if d.Wire != "HTTP" {
		ask, _, err := byGRPC(d.Addr, d.Headers)
		if err != nil {
			log.Fatal(err)
		}
		return ask
	}
	c, err := net.Dial("tcp", d.Addr)
	if err != nil {
		log.Fatal(err)
	}
	text := "GET /original HTTP/1.1\r\nHost: shop.example\r\n"
	for name, value := range d.Headers {
		text += name + ": " + value + "\r\n"
	}
	question, answer := []byte(text+"\r\n"), make([]byte, 4096)
	return func() error {
		if _, err := c.Write(question); err != nil {
			return err
		}
		for n := 0; ; {
			more, err := c.Read(answer[n:])
			if err != nil {
				return err
			}
			if n += more; bytes.HasSuffix(answer[:n], []byte("\r\n\r\n")) { // 204 has no body
				if !bytes.HasPrefix(answer, []byte("HTTP/1.1 204")) {
					return fmt.Errorf("%s answered %.40q", d.Addr, answer[:n])
				}
				return nil
			}
		}
	}
}
