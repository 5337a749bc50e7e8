package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/signals"
)

// inside is the ResponseWriter of a visitor inside.
type inside struct{ http.ResponseWriter }

func (inside) InSession() bool { return true }

// originFunc is an origin without a network.
type originFunc func(r *http.Request) (*http.Response, error)

func (f originFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
func (originFunc) CloseIdleConnections()                               {}

func says(code int, head ...string) (*http.Response, error) {
	h := http.Header{}
	for _, name := range head {
		h.Set(name, "5")
	}
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody, ProtoMajor: 1, ProtoMinor: 1}, nil
}

// slowly is a body that a client sends slowly.
type slowly struct{ parts int }

func (s *slowly) Read(b []byte) (int, error) {
	if s.parts--; s.parts < 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second)
	return copy(b, "part"), nil
}

// What the origin does to the requests of visitors inside is measured until the first byte.
func TestAnswersAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := signals.NewMeter()
		p, err := New(Config{Origin: parseURL(t, "http://127.0.0.1:1"), Meter: m})
		if err != nil {
			t.Fatal(err)
		}
		var origin originFunc
		p.carrier = &watched{next: originFunc(func(r *http.Request) (*http.Response, error) {
			return origin(r)
		}), health: p.health}
		for name, x := range map[string]struct {
			origin            originFunc
			body              io.Reader
			answered, refused uint64
			failed            uint64
			took              int64 // answers whose time counts
		}{
			"200":       {func(*http.Request) (*http.Response, error) { return says(200) }, nil, 1, 0, 0, 1},
			"404":       {func(*http.Request) (*http.Response, error) { return says(404) }, nil, 1, 0, 0, 1},
			"500":       {func(*http.Request) (*http.Response, error) { return says(500) }, nil, 1, 0, 1, 1},
			"503":       {func(*http.Request) (*http.Response, error) { return says(503) }, nil, 1, 0, 1, 1},
			"full":      {func(*http.Request) (*http.Response, error) { return says(503, "Retry-After") }, nil, 1, 1, 0, 1},
			"own limit": {func(*http.Request) (*http.Response, error) { return says(429) }, nil, 1, 0, 0, 1},
			"too many":  {func(*http.Request) (*http.Response, error) { return says(429, "Retry-After") }, nil, 1, 1, 0, 1},
			"timeout": {func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded },
				nil, 0, 0, 1, 1},
			"broken": {func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, nil, 0, 0, 1, 1},
			"refused": {func(*http.Request) (*http.Response, error) {
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}, nil, 0, 0, 1, 0},
			"upload": {func(r *http.Request) (*http.Response, error) {
				io.Copy(io.Discard, r.Body)
				return says(200)
			}, &slowly{3}, 1, 0, 0, 1},
		} {
			origin = func(r *http.Request) (*http.Response, error) {
				res, err := x.origin(r)
				if res != nil {
					res.Request = r
				}
				time.Sleep(2 * time.Second)
				return res, err
			}
			r := httptest.NewRequest("GET", "/p", x.body).WithContext(t.Context())
			m.Read()
			p.ServeHTTP(inside{httptest.NewRecorder()}, r)
			got := m.Read()
			if len(got.Routes) != 1 {
				t.Errorf("%s: %d routes", name, len(got.Routes))
				continue
			}
			y := got.Routes[0]
			took := int64(0)
			for bucket, n := range y.Latency {
				if n > 0 {
					took += n
					if d := got.Length; !strings.HasPrefix(name, "upload") && d != 2*time.Second || bucket < 40 {
						t.Errorf("%s: bucket %d of an interval of %v", name, bucket, d)
					}
				}
			}
			if y.Answered != x.answered || y.Failed != x.failed || y.Refused != x.refused || took != x.took {
				t.Errorf("%s: %d answered, %d failed, %d refused, %d with a time", name, y.Answered, y.Failed,
					y.Refused, took)
			}
			if want := 2.0 / got.Length.Seconds(); x.body == nil && got.InFlight != want {
				t.Errorf("%s: %v under way, want %v", name, got.InFlight, want)
			}
		}
	})
}

// Requests that belong to no session, such as webhooks, say nothing about visitors.
func TestOnlyVisitorsInsideAreMeasured(t *testing.T) {
	m := signals.NewMeter()
	p, err := New(Config{Origin: newOrigin(t, func(http.ResponseWriter, *http.Request) {}), Meter: m})
	if err != nil {
		t.Fatal(err)
	}
	defer p.CloseIdleConnections()
	r := func() *http.Request { return httptest.NewRequest("GET", "/p", nil).WithContext(t.Context()) }
	p.ServeHTTP(httptest.NewRecorder(), r())
	if x := m.Read(); len(x.Routes) != 0 || x.InFlight != 0 {
		t.Errorf("a request of no session is measured: %v", x)
	}
	p.ServeHTTP(inside{httptest.NewRecorder()}, r())
	if x := m.Read(); len(x.Routes) != 1 {
		t.Error("a request of a session is not measured")
	}
}

func TestNetworksOfClients(t *testing.T) {
	of := func(addr string) uint64 {
		return networkOf(ClientAddr(&http.Request{RemoteAddr: addr}, nil))
	}
	if of("192.0.2.1:1") != of("192.0.2.200:2") || of("192.0.2.1:1") == of("192.0.3.1:1") ||
		of("[2001:db8:1::1]:1") != of("[2001:db8:1:ff::2]:1") || of("[2001:db8:1::1]:1") == of("[2001:db8:2::1]:1") {
		t.Error("networks are not told apart")
	}
}
