package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// An origin is the API behind the limit. It records when each call arrived.
type origin struct {
	url    string
	began  time.Time
	server *http.Server
	served chan error

	mu     sync.Mutex
	passes []pass
}

// A pass is a call that reached the origin.
type pass struct {
	city int
	sent time.Time // by the client
	at   time.Time // arrival at the origin
}

// These are the headers that identify a call to the origin.
const (
	cityHeader = "X-City"
	sentHeader = "X-Sent" // after the origin was opened, in nanoseconds
)

// openOrigin starts to listen.
func openOrigin() (*origin, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &origin{url: "http://" + ln.Addr().String(), began: time.Now(), served: make(chan error, 1)}
	o.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := time.Now() // before anything else
		city, err1 := strconv.Atoi(r.Header.Get(cityHeader))
		sent, err2 := strconv.ParseInt(r.Header.Get(sentHeader), 10, 64)
		if errors.Join(err1, err2) != nil {
			http.Error(w, "not a call of ours", http.StatusBadRequest)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.passes = append(o.passes, pass{city, o.began.Add(time.Duration(sent)), at})
	})}
	go func() { o.served <- o.server.Serve(ln) }()
	return o, nil
}

// close stops the origin.
func (o *origin) close() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	err := o.server.Shutdown(ctx)
	if ended := <-o.served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// seen returns the calls that have arrived so far, in order.
func (o *origin) seen() []pass {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := slices.Clone(o.passes)
	slices.SortFunc(all, func(a, b pass) int { return a.at.Compare(b.at) })
	return all
}
