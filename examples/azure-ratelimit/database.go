package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A record is what a user sends. A processor adds Price.
type record struct {
	ID    string  `json:"id"`
	Type  string  `json:"type"`
	Count int     `json:"count"`
	Price float64 `json:"price,omitempty"`
}

// A database accepts a limited number of units in any second, wherever it begins, and rejects the
// rest. It counts all requests.
type database struct {
	url    string
	limit  int
	cost   int // units of a record
	second time.Duration
	server *http.Server
	done   chan error

	mu     sync.Mutex
	taken  []time.Time // one for each record of the last second
	asked  []time.Time // including rejected ones
	stored map[string]int
	counts counts
}

// counts are what a database has counted.
type counts struct {
	Sends, Stored, Refused, Twice int
	MostAsked                     int // records, in any second
	MostFifth                     int // and in any fifth of one
	A, B                          int // stored records, by type
}

// openDatabase listens on a loopback port.
func openDatabase(limit, cost int, second time.Duration) (*database, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := newDatabase(limit, cost, second)
	d.url, d.done = "http://"+ln.Addr().String(), make(chan error, 1)
	d.server = &http.Server{Handler: d, ReadHeaderTimeout: 10 * time.Second}
	go func() { d.done <- d.server.Serve(ln) }()
	return d, nil
}

// newDatabase returns a handler that does not listen.
func newDatabase(limit, cost int, second time.Duration) *database {
	return &database{limit: limit, cost: cost, second: second, stored: map[string]int{}}
}

func (d *database) close() error {
	err := d.server.Close()
	if served := <-d.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// ServeHTTP inserts records, one per line. The answer is 201, or 429 with the ids of the rejected
// records.
func (d *database) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var refused []string
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		var one record
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil || one.ID == "" || one.Price == 0 {
			http.Error(w, "no record: want an id and a price", http.StatusBadRequest)
			return
		}
		if !d.insert(&one, time.Now()) {
			refused = append(refused, one.ID)
		}
	}
	if refused != nil {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(1, d.second/time.Second))))
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(refused)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// insert counts a record, and stores it if it is within the limit.
func (d *database) insert(r *record, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken, d.asked = since(d.taken, now.Add(-d.second)), since(d.asked, now.Add(-d.second))
	c := &d.counts
	c.Sends++
	d.asked = append(d.asked, now)
	c.MostAsked = max(c.MostAsked, len(d.asked))
	fifth := now.Add(-d.second / 5)
	from, _ := slices.BinarySearchFunc(d.asked, fifth, func(at, fifth time.Time) int {
		if at.After(fifth) {
			return 1
		}
		return -1
	})
	c.MostFifth = max(c.MostFifth, len(d.asked)-from)
	if (len(d.taken)+1)*d.cost > d.limit {
		c.Refused++
		return false
	}
	d.taken = append(d.taken, now)
	if d.stored[r.ID]++; d.stored[r.ID] > 1 {
		c.Twice++
		return true
	}
	c.Stored++
	if r.Type == "A" {
		c.A++
	} else {
		c.B++
	}
	return true
}

// since removes the times that are not later than after.
func since(list []time.Time, after time.Time) []time.Time {
	n := 0
	for n < len(list) && !list[n].After(after) {
		n++
	}
	return list[n:]
}

func (d *database) look() counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}
