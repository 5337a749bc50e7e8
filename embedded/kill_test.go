//go:build real

package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/tests/yardstick"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runChild runs a store node until the test's process is gone.
func runChild(text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	f, err := join.Read(c.Join)
	if err != nil {
		return err
	}
	config, err := f.TLS()
	if err != nil {
		return err
	}
	s, err := Open(context.Background(), Config{Dir: c.Dir, Name: c.Name, Cluster: &Cluster{Name: "sjc",
		Listen: c.Listen, Routes: c.Routes, Peers: c.Peers, TLS: config}})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A killed leader does not inform the others: they must detect it.
func TestALeaderMayBeKilled(t *testing.T) {
	stick := yardstick.Start(t)
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	nodes := map[string]*exec.Cmd{}
	begin := time.Now()
	for name := range c.peers {
		nodes[name] = c.spawn(name)
	}
	js := stream(t, c.worker("n1"), 3)
	eventually(t, "the first write", write(js, "one"))
	t.Logf("from nothing to the first write: %v", time.Since(begin).Round(time.Millisecond))

	var gaps []time.Duration
	for range 1 {
		name := leader(t, js)
		if err := nodes[name].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		gaps = append(gaps, eventually(t, "a write after the leader was killed", write(js, name)))
		_ = nodes[name].Wait()
		nodes[name] = c.spawn(name)
		c.caughtUp(js, len(gaps)+1)
	}
	judge(t, stick, "the longest time without a write", slices.Max(gaps), within)
}

// nodeEnv holds, as JSON, what a child of the test runs.
const nodeEnv = "HEADGATE_EMBEDDED_TEST_NODE"

// A child is a store node in a process of its own.
type child struct {
	Join, Dir, Name, Listen, Routes string
	Peers                           []string
}

// spawn starts a store node in a process of its own.
func (c *trio) spawn(name string) *exec.Cmd {
	c.t.Helper()
	config := c.config(name)
	text, err := json.Marshal(child{Join: filepath.Join(c.dir, name+".join"), Dir: config.Dir, Name: name,
		Listen: config.Cluster.Listen, Routes: config.Cluster.Routes, Peers: config.Cluster.Peers})
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process at the latest
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}
