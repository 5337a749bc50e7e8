//go:build ignore

// Overlay writes a changed copy of parts of Go's runtime into a folder, for go test -overlay: one
// processor, no preemption, no garbage collection except while a bubble of testing/synctest is idle,
// and one seed for everything random. A program in a bubble then does the same each time.
//
// It changes the sources of the installed Go by exact replacement. A Go version in which a text is
// missing needs new replacements.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// A change replaces a text that occurs once in a file.
type change struct{ file, from, to string }

// changes returns all changes.
func changes() []change {
	return []change{
		// Everything random comes from a state of each goroutine, which it gets from its parent: who
		// else runs meanwhile does not matter. Map order, hash seeds, select, math/rand and crypto/rand
		// follow. Outside of bubbles the order of goroutines is not fixed, so a bubble begins anew.
		{"runtime/runtime2.go", "\tvalgrindStackID uintptr\n}", "\tvalgrindStackID uintptr\n\n\tseed uint64\n}"},
		{"runtime/proc.go", "\tnewg.parentGoid = callergp.goid\n",
			"\tnewg.parentGoid = callergp.goid\n\tnewg.seed = rand()\n"},
		{"runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n\tfor {\n", `	if true {
		gp := getg()
		if mp := gp.m; gp == mp.g0 {
			if mp.curg != nil {
				gp = mp.curg
			} else if gp.bubble != nil {
				gp = gp.bubble.root
			}
		}
		return seeded(gp)
	}
	mp := getg().m
	c := &mp.chacha8
	for {
`},
		{"runtime/rand.go", "//go:linkname maps_rand", `// seeded is SplitMix64.
//
//go:nosplit
func seeded(gp *g) uint64 {
	gp.seed += 0x9e3779b97f4a7c15
	z := gp.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

//go:linkname maps_rand`},
		{"runtime/rand.go", "\tseed := &globalRand.seed\n\tif len(startupRand)",
			"\tseed := &globalRand.seed\n\tif seed[0] = 1; true {\n\t} else if len(startupRand)"},
		{"runtime/select.go", "cheaprandn(uint32(norder + 1))", "randn(uint32(norder + 1))"},
		{"runtime/time.go", "t.rand = cheaprand()", "t.rand = rand32()"},
		{"crypto/internal/sysrand/rand.go", "if err := read(b);", "if err := seeded(b);"},
		{"crypto/internal/sysrand/rand.go", "// The urandom fallback", `//go:linkname runtime_rand runtime.rand
func runtime_rand() uint64

func seeded(b []byte) error {
	for i := range b {
		b[i] = byte(runtime_rand() >> 32)
	}
	return nil
}

// The urandom fallback`},

		// One goroutine of a bubble runs until it waits. The next one is the oldest in the queue, or,
		// by chance, the one that was made ready last. Those outside take no part in this order.
		{"runtime/proc.go", "\tif n, err := strconv.ParseInt(gogetenv(\"GOMAXPROCS\"), 10, 32); err == nil && n > 0 {",
			"\tif n, err := strconv.ParseInt(\"1\", 10, 32); err == nil && n > 0 {"},
		{"runtime/proc.go", "\tif randomizeScheduler && next && randn(2) == 0 {",
			"\tif next && (gp.bubble == nil || seeded(gp)&1 == 0) {"},
		{"runtime/proc.go", "\t} else {\n\t\tlock(&sched.lock)\n\t\tglobrunqput(gp)\n\t\tunlock(&sched.lock)\n\t}\n\n\tif mainStarted {",
			"\t} else if gp.bubble != nil {\n\t\trunqput(pp, gp, false)\n\t} else {\n\t\tlock(&sched.lock)\n\t\tglobrunqput(gp)\n" +
				"\t\tunlock(&sched.lock)\n\t}\n\n\tif mainStarted {"},
		{"runtime/proc.go", "\tif gp == nil || gp == mp.g0 {\n\t\treturn false\n\t}\n\tif readgstatus(gp)&^_Gscan == _Gsyscall {",
			"\tif gp == nil || gp == mp.g0 || gp.bubble != nil {\n\t\treturn false\n\t}\n\tif readgstatus(gp)&^_Gscan == _Gsyscall {"},
		{"runtime/proc.go", "\t\tpd := &pp.sysmontick\n\t\tsysretake := false\n", `		if mp := pp.m.ptr(); mp == nil || mp.curg == nil || mp.curg.bubble != nil {
			continue
		}
		pd := &pp.sysmontick
		sysretake := false
`},
		{"runtime/runtime1.go", "\tif debug.gccheckmark > 0 {\n\t\tdebug.asyncpreemptoff = 1\n\t}",
			"\tdebug.asyncpreemptoff, debug.gcstoptheworld = 1, 2\n\tMemProfileRate = 0"},
		{"runtime/proc.go", "\tif !inheritTime {\n\t\tmp.p.ptr().schedtick++",
			"\tif !inheritTime && gp.bubble != nil {\n\t\tmp.p.ptr().schedtick++"},
		// A system call keeps the processor, but for those outside that wait, for a process say: a
		// thread that is made for others takes memory.
		{"runtime/proc.go", "\t\t\tsysretake = true\n", ""},
		{"runtime/proc.go", "if runqempty(pp) && sched.nmspinning.Load()+sched.npidle.Load() > 0 && pd.syscallwhen+10*1000*1000 > now {",
			"if pd.syscallwhen+1000*1000*1000 > now {"},
		// A mutex that waits for more than 1 ms is handed over in another way.
		{"runtime/sema.go", "func internal_sync_nanotime() int64 {\n\treturn nanotime()",
			"func internal_sync_nanotime() int64 {\n\treturn time_runtimeNano()"},

		// Addresses are keys of maps: memory is given out in one order.
		{"runtime/mgc.go", "gcController.init(readGOGC(), readGOMEMLIMIT())", "gcController.init(-1, readGOMEMLIMIT())"},
		{"runtime/synctest.go", "\tbubble.now = synctestBaseTime\n", "\tbubble.now = synctestBaseTime\n\tgp.seed = 1\n\tsteps := 0\n"},
		{"runtime/synctest.go", "\t\tbubble.now = next\n\t}", `		bubble.now = next
		if steps++; steps%4096 == 0 {
			unlock(&bubble.mu)
			GC()
			lock(&bubble.mu)
		}
	}`},
	}
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: go run scripts/overlay.go FOLDER")
	}
	dir, err := filepath.Abs(os.Args[1])
	if err != nil {
		fail("%v", err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		fail("go env GOROOT: %v", err)
	}
	texts := map[string]string{}
	for _, c := range changes() {
		file := filepath.Join(strings.TrimSpace(string(root)), "src", c.file)
		text, read := texts[file]
		if !read {
			b, err := os.ReadFile(file)
			if err != nil {
				fail("%v", err)
			}
			text = string(b)
		}
		if n := strings.Count(text, c.from); n != 1 {
			fail("%s of %s has this text %d times, not once; mend scripts/overlay.go:\n%s", file, runtime.Version(), n, c.from)
		}
		texts[file] = strings.Replace(text, c.from, c.to, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		name := filepath.Join(dir, strings.ReplaceAll(strings.Trim(file, "/"), string(filepath.Separator), "_"))
		write(name, text)
		replace[file] = name
	}
	b, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		fail("%v", err)
	}
	write(filepath.Join(dir, "overlay.json"), string(b))
}

func write(name, text string) {
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o644)
	}
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}
