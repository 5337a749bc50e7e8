package guard

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A body goes on while over is false, and ends within a second after it becomes true, even during a
// pause.
func TestBodiesThatAreEnded(t *testing.T) {
	for _, x := range []struct {
		what  string
		send  upload
		minds time.Duration // when over becomes true, 0 for never
		ends  time.Duration // 0 for the end of the upload
	}{
		{"nobody minds", repeat(100, time.Second, 2000), 0, 0},
		{"somebody minds at once", repeat(100, time.Second, 2000), 1, 10 * time.Second},
		{"somebody minds later", repeat(100, time.Second, 2000), 40500 * time.Millisecond, 41 * time.Second},
		{"silence", repeat(2, 29*time.Second, 2000), 1, 10 * time.Second},
		{"what has come is not ended", repeat(5, time.Second, 2000), 1, 0},
	} {
		for _, two := range []bool{false, true} {
			t.Run(x.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					got := make(chan error, 1)
					var took time.Duration
					dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
						r, stop := EndBody(w, r, 10*time.Second, func() bool {
							return x.minds > 0 && time.Since(start) >= x.minds
						})
						defer stop()
						_, err := io.Copy(io.Discard, r.Body)
						took = time.Since(start)
						time.Sleep(time.Minute) // the origin is slow
						got <- err
					})
					send(t, dial, two, x.send)
					err := <-got
					if (err != nil) != (x.ends > 0) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("HTTP/2 %v: the body ends with %v", two, err)
					}
					if x.ends > 0 && (took < x.ends || took > x.ends+time.Second) {
						t.Errorf("HTTP/2 %v: the body ends after %v, want %v", two, took, x.ends)
					}
				})
			})
		}
	}
}

// The end of a body does not affect the next request of the connection.
func TestANextRequestIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
			r, stop := EndBody(w, r, 10*time.Second, func() bool { asked.Add(1); return true })
			defer stop()
			if r.Method == http.MethodGet {
				time.Sleep(time.Minute)
				return
			}
			io.ReadFull(r.Body, make([]byte, 1)) // without reading to the end
		})
		c := dial()
		go io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answers := make([]byte, 1<<10)
		var got strings.Builder
		for range 2 {
			n, err := c.Read(answers)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString(string(answers[:n]))
		}
		if asked.Load() > 0 {
			t.Errorf("a body that was answered is asked for: %q", got.String())
		}
	})
}
