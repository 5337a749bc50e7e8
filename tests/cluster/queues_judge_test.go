package cluster

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

// An arrival is a job that the target was sent, as the target counts it.
type arrival struct {
	job  int
	node string // that sent it
	at   time.Duration
}

// A receipt says that so many jobs were answered: they are on the disk.
type receipt struct {
	at   time.Duration
	jobs int
}

// A flow is all that was seen of a queue, from both its ends.
type flow struct {
	jobs     int // all of them were answered
	arrivals []arrival
	receipts []receipt
}

func (f *flow) sort() {
	slices.SortFunc(f.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	slices.SortFunc(f.receipts, func(a, b receipt) int { return cmp.Compare(a.at, b.at) })
}

// inWindow is the most that has arrived in any window, and when that began.
func (f *flow) inWindow(window time.Duration) (most int, at time.Duration) {
	from := 0
	for i, a := range f.arrivals {
		for a.at-f.arrivals[from].at >= window {
			from++
		}
		if n := i - from + 1; n > most {
			most, at = n, f.arrivals[from].at
		}
	}
	return most, at
}

// missing are jobs that were answered and have not arrived, and repeats how often one has
// that had already.
func (f *flow) missing() (lost []int, repeats int) {
	got := make([]bool, f.jobs)
	for _, a := range f.arrivals {
		if got[a.job] {
			repeats++
		}
		got[a.job] = true
	}
	for i, ok := range got {
		if !ok {
			lost = append(lost, i)
		}
	}
	return lost, repeats
}

// A pause is a time in which jobs waited and none arrived.
type pause struct{ from, to time.Duration }

func (p pause) long() time.Duration { return p.to - p.from }

// pauses are the longest of them, the longest first. Repeats are no progress.
func (f *flow) pauses(n int) []pause {
	var all []pause
	got := make([]bool, f.jobs)
	waiting, next := 0, 0
	last := time.Duration(-1) // since when some wait and none has come
	for _, a := range f.arrivals {
		if got[a.job] {
			continue
		}
		got[a.job] = true
		for next < len(f.receipts) && f.receipts[next].at <= a.at {
			if waiting <= 0 && waiting+f.receipts[next].jobs > 0 {
				last = max(last, f.receipts[next].at)
			}
			waiting += f.receipts[next].jobs
			next++
		}
		if last >= 0 && waiting > 0 {
			all = append(all, pause{last, a.at})
		}
		waiting-- // below 0: it has come before its put was answered
		last = a.at
	}
	slices.SortFunc(all, func(a, b pause) int { return cmp.Compare(b.long(), a.long()) })
	return all[:min(n, len(all))]
}

// by is how many a node has sent between two moments.
func (f *flow) by(node string, from, to time.Duration) (n int) {
	for _, a := range f.arrivals {
		if a.node == node && a.at >= from && a.at < to {
			n++
		}
	}
	return n
}

// steadyFlow is 1,000 jobs, put before the first goes, one each millisecond.
func steadyFlow() *flow {
	f := &flow{jobs: 1000}
	for i := range f.jobs {
		f.arrivals = append(f.arrivals, arrival{i, "n1", time.Second + time.Duration(i)*time.Millisecond})
	}
	for range 10 {
		f.receipts = append(f.receipts, receipt{time.Second / 2, 100})
	}
	return f
}

// TestQueueJudge: the judge of queues finds each fault, and none where there is none.
func TestQueueJudge(t *testing.T) {
	f := steadyFlow()
	f.sort()
	lost, repeats := f.missing()
	if n, _ := f.inWindow(100 * time.Millisecond); n != 100 || lost != nil || repeats != 0 {
		t.Errorf("a good flow: %d in a window, %v lost, %d repeated", n, lost, repeats)
	}
	if p := f.pauses(1)[0]; p != (pause{time.Second / 2, time.Second}) {
		t.Errorf("a good flow pauses for %v", p)
	}
	f.arrivals = slices.Delete(f.arrivals, 300, 350)
	f.arrivals = append(f.arrivals, arrival{0, "n2", 1320 * time.Millisecond},
		arrival{1, "n2", 1999*time.Millisecond + 1})
	f.receipts = []receipt{{900 * time.Millisecond, 999}}
	f.sort()
	if lost, repeats := f.missing(); len(lost) != 50 || lost[0] != 300 || repeats != 2 {
		t.Errorf("%v lost, %d repeated, want 50 and 2", lost, repeats)
	}
	if p := f.pauses(2); p[0].long() != 100*time.Millisecond || p[1].long() != 51*time.Millisecond {
		t.Errorf("it pauses for %v: a repeat is no progress, and before the first put nothing waits", p)
	}
	if n, at := f.inWindow(100 * time.Millisecond); n != 101 || at != 1900*time.Millisecond {
		t.Errorf("%d in a window from %v, want 101", n, at)
	}
	if n := f.by("n2", 1320*time.Millisecond, 2*time.Second); n != 2 {
		t.Errorf("n2 has sent %d, want 2", n)
	}
}
