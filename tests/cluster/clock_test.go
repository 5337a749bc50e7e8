//go:build cluster

package cluster

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clockOffset is the variable by which buildSkewed's headgate is told how many seconds
// its wall clock is ahead.
const clockOffset = "TEST_CLOCK_OFFSET"

// buildSkewed builds headgate with a wall clock that may be wrong: the standard
// library's time.Now adds an offset. What is tested is the program as it is; monotonic
// readings are left alone.
func buildSkewed(t *testing.T) string {
	t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	b, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	text := string(b)
	if strings.Count(text, now) != 1 || strings.Count(text, "import (\n") != 1 {
		t.Fatalf("%s is not as this test knows it", source)
	}
	text = strings.Replace(text, now, now+"\tsec += clockOffset\n", 1)
	text = strings.Replace(text, "import (\n", "import (\n\t\"syscall\"\n", 1) + `
var clockOffset = readClockOffset()

func readClockOffset() (n int64) {
	s, _ := syscall.Getenv("` + clockOffset + `")
	sign := int64(1)
	for _, c := range s {
		if c == '-' {
			sign = -1
		} else {
			n = 10*n + int64(c-'0')
		}
	}
	return sign * n
}
`
	dir := t.TempDir()
	patched, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	program := filepath.Join(dir, "headgate")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{source: patched}})
	for file, b := range map[string][]byte{patched: []byte(text), overlay: list} {
		if err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-race=false", "-overlay", overlay, "-o", program,
		"github.com/headgate/headgate/cmd/headgate")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestClocksApart: the wall clocks of three nodes are 2 s apart, and the host is
// killed. No limit and no place depends on them.
func TestClocksApart(t *testing.T) {
	p := usual()
	p.program, p.ahead = buildSkewed(t), map[string]int{"n1": -1, "n3": 1}
	st := newStage(t, p)
	if apart := st.clocksApart(); apart < 1900*time.Millisecond {
		t.Fatalf("clocks are said to be %v apart: want 2 s", apart)
	}
	l := usualLimits()
	l.faults = 1
	st.at(20 * time.Second)
	host, leader := st.roles()
	l.spells = append(l.spells, st.spell("kill", host, host, leader))
	st.kill("kill", host)
	st.at(st.clock() + downFor)
	st.again(host)
	st.finish(l)
}

// clocksApart is how far the clocks of the others are apart, as a node sees them.
func (st *stage) clocksApart() time.Duration {
	st.t.Helper()
	var x struct {
		Nodes []struct {
			Clock float64 `json:"clock_seconds"`
		} `json:"nodes"`
	}
	if err := st.ask(st.nodes[0], http.MethodGet, "/v1/cluster", "", "", &x); err != nil {
		st.t.Fatal(err)
	}
	least, most := 0.0, 0.0
	for _, n := range x.Nodes {
		least, most = min(least, n.Clock), max(most, n.Clock)
	}
	return time.Duration((most - least) * float64(time.Second))
}
