package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate/queue"
)

// An api accepts the records of users and puts them into the queue of their type. It answers when
// they are on disk.
type api struct {
	url    string
	queues map[string]*queue.Queue
	server *http.Server
	done   chan error
}

func openAPI(queues map[string]*queue.Queue) (*api, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &api{url: "http://" + ln.Addr().String(), queues: queues, done: make(chan error, 1)}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
	go func() { a.done <- a.server.Serve(ln) }()
	return a, nil
}

func (a *api) close() error {
	err := a.server.Close()
	if served := <-a.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// maxRecords limits the records of one request. Chosen.
const maxRecords = 20_000

// ServeHTTP accepts the records of one type, one per line, at /A or /B.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := a.queues[r.URL.Path[1:]]
	if q == nil || r.Method != http.MethodPost {
		http.Error(w, "post records to /A or /B", http.StatusNotFound)
		return
	}
	var jobs []queue.Job
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		var one record
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil || len(jobs) == maxRecords {
			http.Error(w, "no record, or too many", http.StatusBadRequest)
			return
		}
		// Keys are remembered for an hour. A user that does not know whether the records have
		// arrived may send them again.
		jobs = append(jobs, queue.Job{Key: one.ID, Body: append([]byte(nil), lines.Bytes()...)})
	}
	if _, err := q.Put(r.Context(), jobs); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
