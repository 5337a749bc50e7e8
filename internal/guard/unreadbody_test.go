package guard

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A handler that reads the body after it has begun to answer keeps its request. net/http has discarded
// the body, so the read fails, and its deadline must not stay on the connection: when it expired,
// net/http would take the client for gone.
func TestAReadAfterTheFirstWriteDoesNotEndTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 1)
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Write(make([]byte, 10_000)) // net/http discards the body before this
			r.Body.Read(make([]byte, 1))
			time.Sleep(time.Minute)
			got <- r.Context().Err()
		})()
		go io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
		go io.Copy(io.Discard, c)
		if err := <-got; err != nil {
			t.Errorf("the request ended: %v", err)
		}
	})
}

// A client that reads slowly, but within the time for each write, gets the whole answer although the
// handler has not read the request's body.
func TestAnUnreadBodyDoesNotEndASlowDownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 1)
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			for range 5 {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					t.Errorf("write: %v", err)
				}
			}
			got <- r.Context().Err()
		})()
		go io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
		over := make(chan struct{})
		go func() {
			defer close(over)
			n := 20
			in := bufio.NewReaderSize(c, 32<<10)
			for {
				time.Sleep(time.Duration(n) * time.Second)
				n = 40 // Write allows a minute
				if _, err := in.Discard(32 << 10); err != nil {
					return
				}
			}
		}()
		if err := <-got; err != nil {
			t.Errorf("the download was ended: %v", err)
		}
		c.Close()
		<-over
	})
}
