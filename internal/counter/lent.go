package counter

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/slot"
)

// LentState shows where the slots of users at once are, for operators. Its parts and the called
// visitors add up to the limit once all presumed loans have returned.
type LentState struct {
	Inside  int64         `json:"inside"` // sessions that workers have reported
	Called  int64         `json:"called"`
	Free    int64         `json:"free"`    // at the counter
	Workers []WorkerState `json:"workers"` // those that hold most
	More    int           `json:"more"`    // workers that are not in the list
}

// WorkerState is what one worker holds.
type WorkerState struct {
	Name string `json:"name"`
	Held int64  `json:"held"` // slots of users at once: unused, or used and not reported yet
	New  int64  `json:"new"`  // the same for new users
	Gone bool   `json:"gone"` // taken back from it: presumed used for a while
}

// mostWorkers is how many workers are listed. Chosen: the host publishes the list to each node
// every second.
const mostWorkers = 64

// lent returns where the slots of users at once are, nil for Anywhere and for a damaged record. The
// caller holds the lock.
func (c *Counter) lent() *LentState {
	if c.isAnywhere() || c.damaged != nil {
		return nil
	}
	s := workersOf(c.pool.Record())
	s.Inside = c.pool.Record().Limits[0].Ends.After(c.pool.CounterTime(c.cfg.Boot()))
	s.Called = c.pool.Called()
	s.Free = max(0, c.pool.FreeOf(0)-s.Called)
	return s
}

// workersOf returns the workers in a record. A worker that restarted is listed once for each life
// that still holds something. A worker of another data center that reports here for its visitors
// has a loan too, and may have the name of a worker here.
func workersOf(r *slot.Record) *LentState {
	s := &LentState{Workers: []WorkerState{}}
	at := map[WorkerState]int{}
	for i := range r.Loans {
		l := &r.Loans[i]
		w := WorkerState{Name: l.Borrower, Gone: l.Over != 0}
		k, ok := at[w]
		if !ok {
			k = len(s.Workers)
			at[w] = k
			s.Workers = append(s.Workers, w)
		}
		for i, n := range []*int64{&s.Workers[k].Held, &s.Workers[k].New} {
			if l.Over == 0 || r.Time < l.Back[i] {
				*n += l.Lent(i)
			}
		}
	}
	s.Workers = slices.DeleteFunc(s.Workers, func(w WorkerState) bool { return w.Gone && w.Held+w.New == 0 })
	slices.SortFunc(s.Workers, func(a, b WorkerState) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.Name, b.Name))
	})
	if n := len(s.Workers); n > mostWorkers {
		s.Workers, s.More = s.Workers[:mostWorkers], n-mostWorkers
	}
	return s
}
