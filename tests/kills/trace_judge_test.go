package kills

import (
	"strings"
	"testing"
)

// goodTrace is a claim as it should be, with another thread's calls in between
// and one call that the tracer saw in two parts.
const goodTrace = `
10 1.000001 read(7<TCP:[127.0.0.1:80->127.0.0.1:4000]>, "ET /claim-1 HTTP/1.1\r\n"..., 4096) = 99
11 1.000002 write(9</d/engine/1.blk>, "\1headgate.record.counter.main\0\2"..., 300 <unfinished ...>
12 1.000003 fsync(9</d/engine/1.blk>) = 0
11 1.000004 <... write resumed>) = 300
11 1.000005 fsync(9</d/engine/1.blk> <unfinished ...>
12 1.000006 --- SIGURG {si_signo=SIGURG} ---
12 1.000007 pwrite64(8</d/records/main>, "x", 1, 0) = 1
11 1.000008 <... fsync resumed>) = 0
10 1.000009 write(6<TCP:[127.0.0.1:90->127.0.0.1:5000]>, "GET /claim-1 HTTP/1.1\r\n"..., 120) = 120
10 1.000010 write(7<TCP:[127.0.0.1:80->127.0.0.1:4000]>, "HTTP/1.1 200 OK\r\nSet-Cookie: p\r\n\r\nclaim-1", 90) = 90
`

func TestTraceProof(t *testing.T) {
	drop := func(part string) func(string) string {
		return func(s string) string {
			var kept []string
			for line := range strings.Lines(s) {
				if !strings.Contains(line, part) {
					kept = append(kept, line)
				}
			}
			return strings.Join(kept, "")
		}
	}
	tests := []struct {
		name  string
		spoil func(string) string
		wrong string // part of the error, "" if all is well
	}{
		{"as it should be", func(s string) string { return s }, ""},
		{"no sync", drop("11 1.000005 fsync"), "resumes what was not begun"},
		{"no sync at all", func(s string) string {
			return drop("1.000008")(drop("1.000005")(s))
		}, "not synced"},
		{"sync that failed", func(s string) string {
			return strings.Replace(s, "<... fsync resumed>) = 0", "<... fsync resumed>) = -1 EIO", 1)
		}, "not synced"},
		{"sync of another file", func(s string) string {
			return strings.Replace(s, "1.000005 fsync(9</d/engine/1", "1.000005 fsync(9</d/engine/2", 1)
		}, "not synced"},
		{"sync that returned late", func(s string) string {
			const resumed = "11 1.000008 <... fsync resumed>) = 0\n"
			return strings.Replace(s, resumed, "", 1) + resumed
		}, "not synced"},
		{"sync that never returned", drop("1.000008"), "not synced"},
		{"no write", func(s string) string { return drop("1.000002")(drop("1.000004")(s)) },
			"no record was written"},
		{"a short answer of the disk", func(s string) string {
			return strings.Replace(s, "<... write resumed>) = 300", "<... write resumed>) = -1 ENOSPC", 1)
		}, "no record was written"},
		{"a write elsewhere", func(s string) string {
			return strings.ReplaceAll(s, "/d/engine/", "/d/other/")
		}, "no record was written"},
		{"another record", func(s string) string {
			return strings.Replace(s, "record.counter.main", "record.counter.shop", 1)
		}, "no record was written"},
		{"no answer", drop("Set-Cookie"), "in this order"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.spoil(goodTrace)
			if tt.wrong != "" && text == goodTrace {
				t.Fatal("nothing was spoilt")
			}
			calls, err := readTrace(strings.NewReader(text))
			if err == nil {
				_, err = proveClaim(calls, "claim-1", "/d/engine/", "record.counter.main")
			}
			if (err == nil) != (tt.wrong == "") ||
				err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("got %v, want %q", err, tt.wrong)
			}
		})
	}
}
