package traffic

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/hint"
)

// Whatever a file holds, it is refused with a line that says what to do, or its
// visitors come in order of time.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"time,site,dwell\n1694432754.5,sjc,90\n1694432755,lhr,1m\n",
		"ts;colo\n\"2023-09-11T11:45:54Z\";\"a\"\"b\"\n",
		"date\n2023-09-11 11:45:54\n2023-09-11 11:45:54\n",
		request("192.0.2.7", "11:45:54") + request("::1", "11:45:53") + request("192.0.2.7", "11:46:54"),
		"time\n99999999999.9\n", "at\n0\n31622400.1\n", "\x1f\x8b", "time\n\"1\n",
		"time\n1694432754\n1694432754\n1694432754.1\n",
	} {
		f.Add([]byte(seed), uint16(300))
	}
	f.Fuzz(func(t *testing.T, text []byte, session uint16) {
		tr, all, err := parse(t, string(text), Options{Session: time.Duration(session) * time.Second,
			Space: inMemory})
		if err != nil {
			if e, ok := errors.AsType[*hint.Error](err); !ok || e.Do == "" || len(e.Error()) > 1000 {
				t.Fatalf("%v", err)
			}
			return
		}
		if tr.Visitors != int64(len(all)) || tr.Visitors > tr.Lines || len(all) == 0 {
			t.Fatalf("%d visitors, %d lines, %d in the spool", tr.Visitors, tr.Lines, len(all))
		}
		last := time.Duration(0)
		for _, v := range all {
			if v.at < last || v.dwell < 0 || v.site < 0 || int(v.site) >= max(1, len(tr.Datacenters)) {
				t.Fatalf("after %v: %+v", last, v)
			}
			last = v.at
		}
		if all[0].at != 0 || last != tr.Last || last > maxSpan+time.Second {
			t.Fatalf("from %v to %v, told %v", all[0].at, last, tr.Last)
		}
	})
}

// inMemory is a space for tests.
func inMemory() (space, error) { return &memory{}, nil }

type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	if n := int(at) + len(p); n > len(m.b) {
		m.b = append(m.b, make([]byte, n-len(m.b))...)
	}
	return copy(m.b[at:], p), nil
}

func (m *memory) ReadAt(p []byte, at int64) (int, error) { return copy(p, m.b[at:]), nil }

func (m *memory) Close() error { return nil }
