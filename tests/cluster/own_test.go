//go:build cluster

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/loopback"
)

// login is the user that docs/cluster.md tells operators to make.
const login = "headgate:change-me"

// natsServers are the servers of an operator's own NATS.
func natsServers() []string { return []string{"s1", "s2", "s3"} }

// keptBy wants the records to be on so many servers, without being told how many.
func (st *stage) keptBy(n int) {
	st.t.Helper()
	user, password, _ := strings.Cut(login, ":")
	conn, err := nats.Connect(st.nats[0].public, nats.UserInfo(user, password))
	if err != nil {
		st.t.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Request("$JS.API.STREAM.INFO.HEADGATE", nil, settled)
	if err != nil {
		st.t.Fatal(err)
	}
	if want := fmt.Sprintf(`"num_replicas":%d`, n); !strings.Contains(string(m.Data), want) {
		st.t.Errorf("the stream has not %s: %s", want, m.Data)
	}
}

// checkOwn wants the records where they are said to be.
func (st *stage) checkOwn() {
	st.t.Helper()
	st.keptBy(len(natsServers()))
	text := command(st.t, "cluster", "status", "--admin", "http://"+st.nodes[0].admin)
	if !strings.Contains(text, "engine nats://"+st.nats[0].public) ||
		strings.Count(text, " host ") != len(st.nodes) {
		st.t.Errorf("headgate cluster status says\n%s", text)
	}
}

// buildNATS builds the NATS server that go.mod names.
func buildNATS(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-race=false", "-o", file,
		"github.com/nats-io/nats-server/v2")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nats-server: %v\n%s", err, out)
	}
	return file
}

// startNATS starts three servers in a cluster, with the account that
// docs/cluster.md tells operators to make.
func (st *stage) startNATS() {
	st.t.Helper()
	program := buildNATS(st.t)
	var clients, routes []string
	for range natsServers() {
		clients = append(clients, loopback.Free(st.t))
		routes = append(routes, loopback.Free(st.t))
	}
	for i, name := range natsServers() {
		text := fmt.Sprintf("cluster {name: test, listen: %q, routes: [nats://%s]}\n", routes[i],
			strings.Join(routes, ", nats://"))
		n := newNATS(st.t, program, name, clients[i], text+documented(st.t))
		st.nats = append(st.nats, n)
		n.start()
	}
}

// newNATS writes the configuration of a NATS server, and starts nothing.
func newNATS(t *testing.T, program, name, addr, text string) *node {
	t.Helper()
	n := &node{public: addr, admin: addr, config: filepath.Join(t.TempDir(), "nats.conf")}
	n.process = newProcess(t, name, addr, "--config", n.config)
	n.run, n.probe = program, greets
	text = fmt.Sprintf("server_name: %s\nlisten: %q\n", name, addr) + text
	text = strings.ReplaceAll(text, "STORE", filepath.Join(n.dir, "nats"))
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// greets reports whether a NATS server answers.
func greets(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "INFO ") {
		err = fmt.Errorf("greeted with %q", line)
	}
	return err
}

// documented is the part of a NATS server's configuration that docs/cluster.md
// gives, but for the folder: jetstream, and the account with its one user.
func documented(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Your own NATS\n")
	block := regexp.MustCompile("(?s)\n```\n(jetstream .*?)```\n").FindStringSubmatch(section)
	if block == nil || !strings.Contains(block[1], "/var/lib/nats") {
		t.Fatal("docs/cluster.md has no configuration of NATS that begins with jetstream")
	}
	return strings.Replace(block[1], "/var/lib/nats", "STORE", 1)
}

// engine is what a node's configuration says of the NATS of the stage.
func (st *stage) engine(name string) string {
	st.t.Helper()
	var urls []string
	for _, n := range st.nats {
		urls = append(urls, "nats://"+n.public)
	}
	return engineText(st.t, strings.Join(urls, ","), login) + "  name: " + name + "\n"
}

// engineText names servers in a configuration, and a new file with credentials.
func engineText(t *testing.T, urls, credentials string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.creds")
	if err := os.WriteFile(file, []byte(credentials), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("engine:\n  url: %q\n  credentials: %s\n", urls, file)
}

// TestOwnNATSRefuses: what a person must mend ends the start, with a hint.
func TestOwnNATSRefuses(t *testing.T) {
	program := buildNATS(t)
	good := newNATS(t, program, "s1", loopback.Free(t), documented(t))
	bare := newNATS(t, program, "s2", loopback.Free(t), "")
	for _, n := range []*node{good, bare} {
		n.start()
		n.ready()
		t.Cleanup(n.stop)
	}
	for _, tt := range []struct{ url, credentials, problem, hint string }{
		{good.public, "headgate:wrong", "NATS does not let headgate in", "look at the user in"},
		{bare.public, login, "no server of this NATS has JetStream", "add jetstream {store_dir"},
		{pretend(t), login, "is 2.14.9, and headgate needs 2.15.0 or newer", "upgrade all servers"},
	} {
		n := ofEngine(t, engineText(t, "nats://"+tt.url, tt.credentials))
		n.start()
		select {
		case err := <-n.ended:
			text := n.tail()
			if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 1 ||
				!strings.Contains(text, tt.problem) || !strings.Contains(text, "\nhint: "+tt.hint) ||
				strings.Contains(text, "wrong\"") || strings.Contains(text, "change-me") {
				t.Errorf("%v, want %q\n%s", err, tt.problem, text)
			}
		case <-time.After(readyWithin):
			n.kill()
			t.Errorf("it goes on without what it needs: %q\n%s", tt.problem, n.tail())
		}
	}
}

// TestOwnNATSWaits: without a server headgate waits, says so, and starts once there is
// one; it ends when it is told to, with a server or without.
func TestOwnNATSWaits(t *testing.T) {
	s := newNATS(t, buildNATS(t), "s1", loopback.Free(t), documented(t))
	n := ofEngine(t, engineText(t, "nats://"+s.public, login))
	n.start()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !strings.Contains(n.tail(), "waiting for NATS: more than half"); <-tick.C {
		n.alive()
		if time.Since(began) > 15*time.Second {
			t.Fatalf("it says nothing\n%s", n.tail())
		}
	}
	s.start()
	n.ready()
	s.stop()
	n.alive()
	s.start()
	t.Cleanup(s.stop)
	s.ready()
	n.stop()
	if text := n.tail(); strings.Contains(text, "change-me") {
		t.Errorf("the password is told\n%s", text)
	}
}

// ofEngine writes the configuration of a headgate on a NATS, and starts nothing.
func ofEngine(t *testing.T, engine string) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{public: loopback.Free(t), admin: loopback.Free(t),
		config: filepath.Join(dir, "headgate.yaml")}
	n.process = newProcess(t, "n1", n.admin, "run", "--config", n.config)
	text := fmt.Sprintf("listen: %s\nadmin_listen: %s\ndata: %s\n%srooms:\n  - {name: %s, origin: "+
		"\"http://127.0.0.1:9\", total_active_users: 1, new_users_per_minute: 1}\n", n.public, n.admin,
		filepath.Join(dir, "data"), engine, room)
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// pretend greets clients as an older NATS server would.
func pretend(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "INFO {\"server_name\":\"old\",\"version\":\"2.14.9\",\"headers\":true}\r\n")
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					if in.Text() == "PING" {
						fmt.Fprint(c, "PONG\r\n")
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
