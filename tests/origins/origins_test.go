//go:build origins

package origins

import (
	"bufio"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/paths"
)

var python = flag.String("python", "python3", "a Python that has Flask")

// commands start the origins, each at a port.
func commands(t *testing.T) map[string]func(port string) *exec.Cmd {
	folder := t.TempDir()
	return map[string]func(string) *exec.Cmd{
		"Express 4": func(port string) *exec.Cmd { return exec.Command("node", "express/app.js", port, "4") },
		"Express 5": func(port string) *exec.Cmd { return exec.Command("node", "express/app.js", port, "5") },
		"Flask":     func(port string) *exec.Cmd { return exec.Command(*python, "flask/app.py", port) },
		"PHP": func(port string) *exec.Cmd {
			return exec.Command("php", "-S", "127.0.0.1:"+port, "-t", folder, "php/router.php")
		},
	}
}

// serve starts a process that listens at a port, and waits until it does.
func serve(t *testing.T, make func(port string) *exec.Cmd) (addr string) {
	t.Helper()
	n, err := loopback.Ports(1)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(n)
	cmd := make(port)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: %v; run make setup-origins", cmd.Args, err)
	}
	ended := watch(cmd)
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%v wrote:\n%s", cmd.Args, text[:min(len(text), 4000)])
		}
	})
	addr = "127.0.0.1:" + port
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return addr
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("%v ended; run make setup-origins", cmd.Args)
		}
		if time.Now().After(end) {
			t.Fatalf("%v does not listen after a minute", cmd.Args)
		}
	}
}

// watch waits for a process; the channel closes when it has ended.
func watch(cmd *exec.Cmd) <-chan struct{} {
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	return ended
}

// headgate starts the binary with its defaults before an origin.
func headgate(t *testing.T, bin, origin, room string) (addr string) {
	t.Helper()
	dir := t.TempDir()
	return serve(t, func(port string) *exec.Cmd {
		file := filepath.Join(dir, "headgate.yaml")
		text := "listen: 127.0.0.1:" + port + "\nadmin_listen: 127.0.0.1:0\ndata: " + dir + "/data\n" +
			"rooms: [{name: shop, origin: \"http://" + origin + "\", total_active_users: 9, " +
			"new_users_per_minute: 9, " + room + "}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(bin, "run", "--config", file)
	})
}

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "headgate")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin,
		"github.com/headgate/headgate/cmd/headgate").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// ask sends a request for a target as it is written.
func ask(t *testing.T, addr, method, target string) (status int, route, seen string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		method, target)
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %q: %v", method, target, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	path, err := base64.StdEncoding.DecodeString(res.Header.Get("X-Path"))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body), string(path)
}

// targets are paths made of what origins read in different ways.
func targets(n int) (all []string) {
	parts := []string{"/", "//", "/./", "/../", "..%2f", "%2e%2e/", "%2E%2e%2F", `..\`, "..%5c", "..;x/",
		";x",
		"%2f", "%252e%252e/", "%252f", "%3b", "%3f", "%23", "checkout", "CHECKOUT", "%63heckout",
		"robots.txt",
		"admin", "/checkout/", "a",
		"%41", "%20", "%c3%a9", "(", "%28", ",", "%25"}
	random := rand.New(rand.NewPCG(1, 2)) // the same ones each time
	for range n {
		target := "/"
		for range random.IntN(7) {
			target += parts[random.IntN(len(parts))]
		}
		all = append(all, target)
	}
	return all
}

// TestRealRoutersSeeAReading: what a real router sees is among the readings.
func TestRealRoutersSeeAReading(t *testing.T) {
	for name, make := range commands(t) {
		t.Run(name, func(t *testing.T) {
			addr, seenAny := serve(t, make), 0
			for _, target := range targets(1500) {
				u, err := url.ParseRequestURI(target)
				if err != nil {
					continue // headgate answers 400
				}
				paths.Keep(u)
				p := paths.Of(u)
				if p.Malformed() || p.Excessive() {
					continue
				}
				_, _, seen := ask(t, addr, "GET", u.EscapedPath())
				if seen == "" {
					continue // a redirect or an error of its own
				}
				seenAny++
				// An origin that does not decode sees what must be encoded as it was written.
				if name != "Flask" && name != "PHP" {
					seen = named(seen)
				}
				var all []string
				for i := range p.Len() {
					all = append(all, p.At(i))
				}
				same := func(s string) bool { return s == seen || named(s) == named(seen) }
				if !slices.ContainsFunc(all, same) {
					t.Errorf("%s sees %q as %q, which is not among %q", name, target, seen, all)
				}
			}
			if seenAny < 200 {
				t.Errorf("the origin saw %d paths alone", seenAny)
			}
		})
	}
}

// named decodes what must be encoded in a path.
func named(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) && s[i] == '%' {
			c, err := url.PathUnescape(s[i : i+3])
			if err == nil && (c[0] >= 0x80 || strings.ContainsAny(c, ` "#%<>?[\]^{|}`+"`")) {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// TestRealOrigins: finding 1, with the binary between.
func TestRealOrigins(t *testing.T) {
	bin := build(t)
	t.Run("behind a closed room", func(t *testing.T) { behindAClosedRoom(t, bin) })
	t.Run("behind a deny", func(t *testing.T) { behindADeny(t, bin) })
}

// behindAClosedRoom: no spelling of a path passes a closed room of the default configuration, but
// what every reading excludes.
func behindAClosedRoom(t *testing.T, bin string) {
	for name, make := range commands(t) {
		t.Run(name, func(t *testing.T) {
			addr := headgate(t, bin, serve(t, make), "closed: true")
			if _, route, _ := ask(t, addr, "POST", "/robots.txt"); route != "robots" {
				t.Fatalf("/robots.txt leads to %q", route)
			}
			all := []string{"/checkout/..%2frobots.txt", `/checkout/..\robots.txt`,
				"/checkout/..%5crobots.txt",
				"/checkout/%2e%2e/robots.txt", "/checkout/..;x/robots.txt",
				"/checkout/%252e%252e/robots.txt",
				"/.well-known/..%2fcheckout/x", "/.well-known/../checkout/x", "/robots.txt;/../checkout/x",
				"/robots.txt/..%2fcheckout/x", "/robots.txt%2f..%2fcheckout/x"}
			for _, target := range append(all, targets(800)...) {
				if status, route, _ := ask(t, addr, "POST", target); status < 400 && route != "robots" {
					t.Errorf("POST %s: %d, and the origin's route is %q", target, status, route)
				}
			}
		})
	}
}

// behindADeny: what a rule denies is served in no spelling.
func behindADeny(t *testing.T, bin string) {
	for name, make := range commands(t) {
		t.Run(name, func(t *testing.T) {
			addr := headgate(t, bin, serve(t, make), "rules: ["+
				"{action: deny, expression: 'starts_with(http.request.uri.path, \"/admin\")'}, "+
				"{action: bypass, expression: 'http.request.method == \"PUT\"'}]")
			if _, route, _ := ask(t, addr, "PUT", "/x"); route != "other" {
				t.Fatalf("/x leads to %q", route)
			}
			all := []string{"/admin", "/ADMIN", "/admin/", "/%61dmin", "/x/..%2fadmin", "//admin", "/./admin",
				"/admin;x", `/x/..\admin`, "/%2561dmin", "/admin%3fx", "/x/%2e%2e/admin"}
			for _, target := range append(all, targets(800)...) {
				if status, route, _ := ask(t, addr, "PUT", target); route == "admin" {
					t.Errorf("PUT %s: %d, and the origin's route is %q", target, status, route)
				}
			}
		})
	}
}
