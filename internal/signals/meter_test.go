package signals

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/histogram"
)

// ask measures one request that ends at once.
func ask(m *Meter, method, path string, network uint64, o Outcome) {
	var f Flight
	f.Begin(m, nil, network)
	f.End(request(method, path), o)
}

func request(method, path string) *http.Request { return httptest.NewRequest(method, path, nil) }

func route(x *Report, class string) *adaptive.Route {
	i := slices.IndexFunc(x.Routes, func(r adaptive.Route) bool { return r.Class == class })
	if i < 0 {
		return &adaptive.Route{}
	}
	return &x.Routes[i]
}

// The mean of the requests under way counts each for as long as it was under way, those that are
// still under way included. The sum behind it may have wrapped around.
func TestInFlightIsTheMeanOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		for round := range 3 {
			if round > 0 { // as after 100 days of requests
				m.flow.Store(1<<63 - 1 - 1<<30 - (1<<63-1)&(1<<flowBits-1))
				m.Read()
			}
			var long, short, gone Flight
			long.Begin(m, nil, 1)
			time.Sleep(time.Second)
			short.Begin(m, nil, 2)
			gone.Begin(m, nil, 3)
			time.Sleep(time.Second)
			short.End(request("GET", "/"), Answered)
			short.End(request("GET", "/"), Failed) // nothing more
			gone.Cancel()
			time.Sleep(2 * time.Second)
			x := m.Read()
			if want := (4. + 1 + 1) / 4; x.InFlight != want || x.Length != 4*time.Second {
				t.Errorf("round %d: %v under way in %v, want %v", round, x.InFlight, x.Length, want)
			}
			time.Sleep(time.Second)
			if x := m.Read(); x.InFlight != 1 || len(x.Routes) != 0 {
				t.Errorf("round %d: then %v under way, want 1, and routes %v", round, x.InFlight, x.Routes)
			}
			long.Cancel()
		}
	})
}

// Each outcome counts where it belongs, and a slow client is no slow origin.
func TestWhatARequestSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		const second = time.Second
		for network, x := range map[uint64]struct {
			upload, origin time.Duration
			end            func(*Flight, *http.Request)
		}{
			100: {0, 2 * second, func(f *Flight, r *http.Request) { f.End(r, Answered) }},
			200: {9 * second, 2 * second, func(f *Flight, r *http.Request) { f.End(r, Answered) }},
			300: {0, 2 * second, func(f *Flight, r *http.Request) { f.End(r, Failed) }},
			400: {0, 2 * second, func(f *Flight, r *http.Request) { f.End(r, Refused) }},
			500: {0, 2 * second, func(f *Flight, r *http.Request) { f.End(r, Lost) }},
			600: {0, 0, func(f *Flight, r *http.Request) { f.End(r, Unreachable) }},
			700: {0, 2 * second, (*Flight).Gone},
			800: {0, second / 2, (*Flight).Gone},
			900: {0, second, func(f *Flight, _ *http.Request) { f.Cancel() }},
		} {
			var f Flight
			f.Begin(m, nil, network)
			time.Sleep(x.upload)
			f.Sent()
			time.Sleep(x.origin)
			x.end(&f, request("GET", "/"))
		}
		r := route(m.Read(), Rest)
		if r.Answered != 5 || r.Failed != 3 || r.Refused != 1 {
			t.Errorf("answered %d, failed %d, refused %d; want 5, 3 and 1", r.Answered, r.Failed, r.Refused)
		}
		if n := r.Latency[histogram.BucketOf(2*second)]; n != 6 || r.Latency.Total() != 6 {
			t.Errorf("%d of %d answers took 2 s, want 6 of 6", n, r.Latency.Total())
		}
	})
}

// A client that makes failing requests counts as often as any other.
func TestOneNetworkProvesLittle(t *testing.T) {
	m := NewMeter()
	for range 1000 {
		ask(m, "GET", "/a", 7, Failed)
	}
	for network := range uint64(50) {
		ask(m, "GET", "/b", 1000+network, Answered)
	}
	r := route(m.Read(), Rest)
	if r.Failed != adaptive.MaxPerNetwork || r.Answered != 1050 {
		t.Errorf("%d of %d failed, want %d of 1050", r.Failed, r.Answered, adaptive.MaxPerNetwork)
	}
	ask(m, "GET", "/a", 7, Failed) // the next interval
	if r := route(m.Read(), Rest); r.Failed+route(m.Read(), "GET /a").Failed > 1 {
		t.Errorf("then %d failed", r.Failed)
	}
}

// However many classes a client invents, those that visitors use keep their measurements, and new
// ones get them.
func TestInventedClassesReplaceNothing(t *testing.T) {
	m := NewMeter()
	rng := rand.New(rand.NewPCG(1, 2))
	real := func(from, n int) {
		for range 20 {
			for k := range n {
				ask(m, "GET", fmt.Sprintf("/page-%c%c", 'a'+(from+k)/20, 'a'+(from+k)%20), rng.Uint64(), Answered)
			}
		}
	}
	invent := func() {
		for range 5000 {
			ask(m, "GET", fmt.Sprintf("/x/%x", []byte{'a' + byte(rng.IntN(9)), byte(rng.IntN(256))}), 99, Answered)
			ask(m, fmt.Sprintf("M%c%c", 'A'+rng.IntN(26), 'A'+rng.IntN(26)), "/", 99, Answered)
		}
	}
	count := func(x *Report) (n int) {
		for i := range x.Routes {
			if x.Routes[i].Class[:min(9, len(x.Routes[i].Class))] == "GET /page" {
				n++
			}
		}
		return n
	}
	for range 3 { // the client comes first, and fills what is empty
		invent()
		m.Read()
	}
	for range 4 {
		invent()
		real(0, 40)
		m.Read()
	}
	real(0, 40)
	if n := count(m.Read()); n != 40 {
		t.Errorf("%d of 40 classes that visitors use have measurements of their own", n)
	}
	for range 20 {
		invent()
		real(0, 20) // the others have a quiet moment
		m.Read()
	}
	real(0, 20)
	x := m.Read()
	if n := count(x); n != 20 || len(m.table.Load().of) != mostClasses {
		t.Errorf("%d of 20, of %d classes", n, len(m.table.Load().of))
	}
	if len(x.Routes) > adaptive.MaxRoutes {
		t.Errorf("%d routes", len(x.Routes))
	}
}

func TestNamesOfClasses(t *testing.T) {
	for path, want := range map[string]string{
		"/": "GET /", "/product/7": "GET /product/*", "/v1/items": "GET /v1/items", "/step2": "GET /step2",
		"/a/b/c/d/e/f": "GET /a/b/c/d", "/o/3fa85f64-5717-4562-b3fc-2c963f66afa6/x": "GET /o/*/x",
		"/img/app.3f9a81.js": "GET /img/*", "/product/": "GET /product/", "*": "GET *", "": "GET ",
	} {
		if got := nameOf("GET", path); got != want {
			t.Errorf("%q is %q, want %q", path, got, want)
		}
	}
	if keyOf("GET", "/product/7") != keyOf("GET", "/product/812") ||
		keyOf("GET", "/product/7") == keyOf("POST", "/product/7") || keyOf("GET", "/a") == keyOf("GET", "/b") {
		t.Error("classes are not told apart as their names are")
	}
}

func TestMeasuringDoesNotAllocate(t *testing.T) {
	m, r := NewMeter(), request("GET", "/product/7/reviews")
	ask(m, "GET", "/product/7/reviews", 1, Answered)
	m.Read()
	var f Flight
	if n := testing.AllocsPerRun(100, func() {
		f.over = false
		f.Begin(m, nil, 5)
		f.End(r, Answered)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// No request is lost between intervals.
func TestConcurrentRequestsAreAllCounted(t *testing.T) {
	m := NewMeter()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	total := uint64(0)
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			for _, r := range m.Read().Routes {
				total += r.Answered
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for k := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				ask(m, "GET", fmt.Sprintf("/p%c", 'a'+i%5), uint64(k), Answered)
			}
		})
	}
	wg.Wait()
	close(stop)
	reading.Wait()
	for _, r := range m.Read().Routes {
		total += r.Answered
	}
	if total != 8000 {
		t.Errorf("%d of 8000 requests counted", total)
	}
	if n := m.flow.Load() & (1<<flowBits - 1); n != 0 {
		t.Errorf("%d requests are under way for ever", n)
	}
}

func sample() *Report {
	x := &Report{From: "n1", Length: 5 * time.Second, InFlight: 12.5, Inside: 80.25, Waiting: 7, Entered: 9}
	for k := range adaptive.MaxRoutes {
		r := adaptive.Route{Class: fmt.Sprintf("GET /%d", k), Answered: uint64(1000 - k), Failed: 3, Refused: 2}
		r.Latency.Add(time.Duration(k)*time.Millisecond, 9)
		r.Latency.Add(time.Minute, 1)
		x.Routes = append(x.Routes, r)
	}
	x.Routes[adaptive.MaxRoutes-1].Class = Rest
	x.by.counted[0], x.by.counted[63], x.by.failed[7], x.by.slow[63] = 5, 700, 3, 9
	return x
}

func TestAReportIsReadAsItWasWritten(t *testing.T) {
	x := sample()
	got, err := ReadReport(x.Append(nil))
	if err != nil || fmt.Sprint(*got) != fmt.Sprint(*x) {
		t.Errorf("%v, %v", got, err)
	}
	for i := range x.Routes { // as large as it can be
		x.Routes[i].Class = fmt.Sprintf("%0*d", mostName, i)
		for k := range x.Routes[i].Latency {
			x.Routes[i].Latency[k] = most - 1
		}
	}
	for i := range x.Routes {
		r := &x.Routes[i]
		r.Answered, r.Failed, r.Refused = most-1, most-1, most-1
	}
	for _, g := range x.by.all() {
		for k := range g {
			g[k] = most
		}
	}
	b := x.Append([]byte("head"))
	if got, err = ReadReport(b[4:]); err != nil || fmt.Sprint(*got) != fmt.Sprint(*x) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
}

// The routes of several nodes add up, and never are more than a sample may have.
func TestReportsAddUp(t *testing.T) {
	x := &Report{}
	x.add(sample())
	other := sample()
	for i := range 40 {
		other.Routes[i].Class = fmt.Sprintf("POST /%d", i)
	}
	x.add(other)
	if len(x.Routes) != adaptive.MaxRoutes || x.Routes[adaptive.MaxRoutes-1].Class != Rest {
		t.Fatalf("%d routes", len(x.Routes))
	}
	var got, want uint64
	for i := range x.Routes {
		got += x.Routes[i].Answered
	}
	for range 2 {
		for _, r := range sample().Routes {
			want += r.Answered
		}
	}
	if r := route(x, "GET /50"); got != want || r.Answered != 2*950 || r.Latency.Total() != 20 {
		t.Errorf("%d answers, want %d; one route has %+v", got, want, r)
	}
}

func FuzzReport(f *testing.F) {
	f.Add(sample().Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ReadReport(b)
		if err != nil {
			return
		}
		again, err := ReadReport(x.Append(nil))
		if err != nil || !bytes.Equal(again.Append(nil), x.Append(nil)) {
			t.Errorf("%v: %v", x, err)
		}
	})
}

// A meter of calls counts the slots that are held, and all requests of a network; so does the meter of the
// visitors, by its own rule, for the same request.
func TestCallsOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		visitors, calls := NewMeter(), NewCallMeter()
		for range 10 {
			calls.Enter()
			var f Flight
			f.Begin(visitors, []*Meter{calls}, 7)
			time.Sleep(100 * time.Millisecond) // until the answer begins
			f.End(request("GET", "/"), Failed)
			time.Sleep(100 * time.Millisecond) // the client reads
			calls.Leave()
		}
		var only Flight
		only.Begin(nil, []*Meter{calls}, 7)
		only.End(request("GET", "/"), Answered)
		all := func(x *Report) (n int64, failed uint64) {
			for i := range x.Routes {
				n, failed = n+x.Routes[i].Latency.Total(), failed+x.Routes[i].Failed
			}
			return n, failed
		}
		x, y := calls.Read(), visitors.Read()
		if n, failed := all(x); n != 11 || failed != 10 || x.InFlight != 1 {
			t.Errorf("%d calls, %d failed, %v slots; want 11, 10 and 1", n, failed, x.InFlight)
		}
		if n, failed := all(y); n != adaptive.MaxPerNetwork || failed != uint64(n) || y.InFlight != 0.5 {
			t.Errorf("%d requests, %d failed, %v under way; want %d and half of the time", n, failed, y.InFlight,
				adaptive.MaxPerNetwork)
		}
	})
}
