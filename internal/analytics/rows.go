package analytics

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// A Query selects a series and a period in steps. Times are Unix seconds. From and To are multiples
// of Step, which is at least a minute.
type Query struct {
	Series
	From, To, Step int64
}

// Rows answers a query with the data of this node, including the current minute. It blocks while it
// reads files.
func (k *Recorder) Rows(q *Query) ([]Row, error) {
	k.Collect()
	g := newGrid(q.Kind, q.From, q.To, q.Step)
	k.mu.RLock()
	broken, err := k.fill(g, q)
	k.mu.RUnlock()
	for path, why := range broken {
		k.mu.Lock()
		k.setAside(path, why)
		k.mu.Unlock()
	}
	return g.rows(), err
}

// fill reads all data, and returns the files that are damaged. The lock is held for reading.
func (k *Recorder) fill(g *grid, q *Query) (broken map[string]error, err error) {
	broken = map[string]error{}
	allMinutes, allHours, logs := k.days(minuteEnd), k.days(hourEnd), k.days(logEnd)
	for day := dayOf(q.From); day*daySeconds < q.To; day++ {
		end, minutes, hours := minuteEnd, slices.Contains(allMinutes, day), slices.Contains(allHours, day)
		// Hours are enough if each lies in one step. Old days have only hours.
		if hours && (!minutes || q.Step%hourSeconds == 0 && q.From%hourSeconds == 0) {
			end = hourEnd
		}
		if hours || minutes {
			path := k.path(day, end)
			if e := addDay(g, path, q.Series); e != nil {
				if _, damaged := errors.AsType[*fileError](e); damaged {
					broken[path] = e
				} else if !errors.Is(e, fs.ErrNotExist) {
					err = errors.Join(err, e)
				}
			}
		}
		if slices.Contains(logs, day) {
			err = errors.Join(err, addLog(g, k.path(day, logEnd), q.Series))
		}
	}
	if f := k.series[q.Series]; f != nil && f.now.known {
		if r := f.row(q.Kind, k.minute); !r.empty() {
			g.add(&r)
		}
	}
	return broken, err
}

func addDay(g *grid, path string, s Series) error {
	d, err := openDay(path)
	if err != nil {
		return err
	}
	defer d.close()
	return d.add(g, s)
}

// addLog adds the rows of a log. Damage is found and reported when the log is opened.
func addLog(g *grid, path string, s Series) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	x := &logReader{b: b, file: path}
	own := -1
	for x.next() {
		for n, body := range x.rows() {
			if own < 0 && x.names[n] == s {
				own = n
			}
			if n == own {
				r := newReader(body)
				r.body(g, x.minute*60)
			}
		}
	}
	return nil
}

// Steps returns the allowed steps. Each divides a day or is a multiple of a day.
func Steps() []int64 {
	return []int64{60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 7 * 86400}
}

// mostSteps limits the memory for an answer. Chosen.
const mostSteps = 2000

// Check validates a query of another node.
func (q *Query) Check() error {
	columns, _ := q.Kind.columns()
	if columns == nil || len(q.Name) > mostName || !slices.Contains(Steps(), q.Step) || q.From < 0 ||
		q.To > 1<<40 || q.From%q.Step != 0 || (q.To-q.From)/q.Step > mostSteps {
		return errors.New("an analytics query is invalid")
	}
	return nil
}
