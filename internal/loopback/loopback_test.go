package loopback

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// TestMain is also the other processes of TestPortsAreOneProcess: they say which ports
// they got, and hold none of them until their standard input ends.
func TestMain(m *testing.M) {
	if os.Getenv("LOOPBACK_PORTS") == "" {
		os.Exit(m.Run())
	}
	for range 200 {
		port, err := Ports(1)
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println(port)
	}
	fmt.Println("done")
	bufio.NewReader(os.Stdin).ReadByte()
}

func TestPortsAreOneProcess(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	var all, said sync.WaitGroup
	end := make(chan struct{})
	for i := range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "LOOPBACK_PORTS=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said.Add(1)
		all.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "done"; {
				mu.Lock()
				if other, twice := seen[lines.Text()]; twice {
					t.Errorf("processes %d and %d both have %s", other, i, lines.Text())
				}
				seen[lines.Text()] = i
				mu.Unlock()
			}
			said.Done()
			<-end
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	said.Wait()
	close(end)
	all.Wait()
	if len(seen) != 8*200 {
		t.Errorf("%d ports of %d", len(seen), 8*200)
	}
}

func TestPortsInARow(t *testing.T) {
	given := map[int]bool{}
	for range 30 {
		first := Port(t, 7)
		for port := first; port < first+7; port++ {
			if given[port] || port < lowest || port >= highest {
				t.Fatalf("port %d of %d to %d: given before, or not of ours", port, first, first+6)
			}
			given[port] = true
			l, err := net.Listen("tcp", Address(port))
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
	}
	if addr := Free(t); !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Errorf("address %q", addr)
	}
	for _, n := range []int{-1, 0, block} {
		if _, err := Ports(n); err == nil {
			t.Errorf("%d ports: no error", n)
		}
	}
}

// Where somebody listens already, the ports are those after.
func TestTakenPortsAreLeftOut(t *testing.T) {
	before := Port(t, 1)
	l, err := net.Listen("tcp", Address(before+2))
	if err != nil {
		before = Port(t, 1) // the block was at its end: it is the first of the next one
		if l, err = net.Listen("tcp", Address(before+2)); err != nil {
			t.Fatal(err)
		}
	}
	defer l.Close()
	if got := Port(t, 2); got <= before+2 && got+1 >= before+2 {
		t.Errorf("ports %d and %d, and %d is taken", got, got+1, before+2)
	}
}
