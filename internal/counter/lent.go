package counter

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/slot"
)

// LentState is what an operator is told of the slots of users at once: whose they are. With
// visitors who are called, its parts are the limit once all that was presumed has come back.
type LentState struct {
	Inside  int64         `json:"inside"` // stays that workers have reported
	Called  int64         `json:"called"`
	Free    int64         `json:"free"`    // here, at the counter
	Workers []WorkerState `json:"workers"` // those that hold most, by what they hold
	More    int           `json:"more"`    // workers that are not listed
}

// WorkerState is what one worker holds.
type WorkerState struct {
	Name string `json:"name"`
	Held int64  `json:"held"` // of users at once: unused, or used and not reported yet
	New  int64  `json:"new"`  // the same of new users
	Gone bool   `json:"gone"` // taken back from it: presumed used for a while
}

// mostWorkers is how many workers are listed. Chosen: each node is told them each second.
const mostWorkers = 64

// lent says who holds the slots of users at once, nil for Anywhere. Holds the lock.
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

// workersOf are the workers of a record, each life of one that still holds something. One that reports
// for visitors from another data centre has a loan too, and may have the name of one that is here.
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
