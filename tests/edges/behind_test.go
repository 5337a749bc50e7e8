//go:build edges

package edges

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/proxy"
)

const nginxBehind = `server {
	listen LISTEN;
	root ROOT;
	keepalive_requests 7;
	if_modified_since before;
	gzip on; gzip_types text/plain; gzip_min_length 1;
	types { text/plain txt; }
	location /put/ { dav_methods PUT; client_max_body_size 20m; }
	location /nothing { log_not_found off; }
	location /none { return 204; }
	location /said { return 200 "$request_method $http_x_forwarded_for $http_connection $http_te"; }
	location /short { client_max_body_size 1k; dav_methods PUT; }
	location /gone { return 444; }
}
`

// TestNginxAsOrigin: nginx behind headgate's proxy. It ends connections after seven requests, answers
// before it has read a body, and does all that a file server does.
func TestNginxAsOrigin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big := bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16)
	write(t, dir, "small", "hello")
	write(t, dir, "big", string(big))
	write(t, dir, "text.txt", strings.Repeat("a line of text\n", 1000))
	if err := os.Mkdir(filepath.Join(dir, "put"), 0o700); err != nil {
		t.Fatal(err)
	}
	addr := loopback.Free(t)
	runNginx(t, addr, strings.NewReplacer("LISTEN", addr, "ROOT", dir).Replace(nginxBehind))
	p, err := proxy.New(proxy.Config{Origin: &url.URL{Scheme: "http", Host: addr}})
	if err != nil {
		t.Fatal(err)
	}
	gate := httptest.NewServer(p)
	t.Cleanup(func() { gate.Close(); p.CloseIdleConnections() })
	ask := func(method, path string, body io.Reader, heads ...string) (*http.Response, []byte) {
		r, err := http.NewRequest(method, gate.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(heads); i += 2 {
			r.Header.Set(heads[i], heads[i+1])
		}
		res, err := gate.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return &http.Response{}, nil
		}
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return res, got
	}
	status := func(want int, method, path string, body io.Reader, heads ...string) {
		t.Helper()
		if res, _ := ask(method, path, body, heads...); res.StatusCode != want {
			t.Errorf("%s %s: status %d, want %d", method, path, res.StatusCode, want)
		}
	}
	var wg sync.WaitGroup
	for range 8 { // all of it at once: connections end and begin all the time
		wg.Go(func() {
			for range 25 {
				if res, b := ask("GET", "/small", nil); res.StatusCode != 200 || string(b) != "hello" {
					t.Errorf("%d %q", res.StatusCode, b)
				}
				if res, b := ask("HEAD", "/big", nil); res.ContentLength != int64(len(big)) || len(b) != 0 {
					t.Errorf("HEAD: %d, %d bytes", res.ContentLength, len(b))
				}
				status(204, "GET", "/none", nil)
				status(404, "GET", "/nothing", nil)
				status(304, "GET", "/small", nil, "If-Modified-Since", time.Now().UTC().Format(http.TimeFormat))
				if res, b := ask("GET", "/small", nil, "Range", "bytes=1-3"); res.StatusCode != 206 || string(b) != "ell" {
					t.Errorf("range: %d %q", res.StatusCode, b)
				}
				if _, b := ask("GET", "/said", nil, "Te", "trailers"); string(b) != "GET 127.0.0.1  trailers" {
					t.Errorf("%q", b)
				}
				if res, _ := ask("GET", "/text.txt", nil, "Accept-Encoding", "gzip"); res.Header.Get("Content-Encoding") != "gzip" {
					t.Errorf("%v", res.Header)
				}
				status(502, "GET", "/gone", nil)
			}
		})
	}
	wg.Wait()
	for i, body := range []io.Reader{bytes.NewReader(big), io.MultiReader(bytes.NewReader(big))} {
		for _, expect := range []string{"", "100-continue"} {
			path := fmt.Sprintf("/put/%d%s", i, expect)
			if seeker, ok := body.(io.Seeker); ok {
				seeker.Seek(0, io.SeekStart)
			} else {
				body = io.MultiReader(bytes.NewReader(big))
			}
			heads := []string{"X-Any", "1"}
			if expect != "" {
				heads = []string{"Expect", expect}
			}
			status(201, "PUT", path, body, heads...)
			if _, b := ask("GET", path, nil); sha256.Sum256(b) != sha256.Sum256(big) {
				t.Errorf("%s: %d bytes came back, and not the same", path, len(b))
			}
		}
	}
	// nginx refuses by the header alone, and closes while the client still sends.
	if res, _ := ask("PUT", "/short", bytes.NewReader(big)); res.StatusCode != 413 {
		t.Errorf("a body that is too large: %d", res.StatusCode)
	}
}
