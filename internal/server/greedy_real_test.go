//go:build real

package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A body that does not come must not hold a connection to the origin, with a pass or without.
func TestASlowBodyEnds(t *testing.T) {
	came, ended := make(chan string, 9), make(chan error, 9)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			came <- r.URL.Path
			_, err := io.Copy(io.Discard, r.Body)
			ended <- err
		}
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom+"request_body_timeout: 1s\n")
	pass := get(t, visitors+"/", "").cookie
	for _, line := range []string{"POST /robots.txt HTTP/1.1\r\nHost: x\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nCookie: " + pass + "\r\n"} {
		for _, body := range []string{"Content-Length: 1000\r\n\r\nslow", "Transfer-Encoding: chunked\r\n\r\n4\r\nslow\r\n"} {
			c, in := dial(t, visitors)
			io.WriteString(c, line+body)
			<-came
			select {
			case err := <-ended:
				if err == nil {
					t.Errorf("%q: the origin takes the body for whole", body)
				}
			case <-time.After(patience):
				t.Fatalf("%q: the origin still waits", body)
			}
			io.Copy(io.Discard, in) // until headgate closes the connection
		}
	}
}
