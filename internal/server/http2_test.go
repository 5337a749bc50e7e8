package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c" //nolint:staticcheck // nothing else upgrades to h2c, as old origins do
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// A framer is an HTTP/2 client that can send any frames.
type framer struct {
	*http2.Framer
	c     net.Conn
	head  bytes.Buffer
	enc   *hpack.Encoder
	ended chan struct{} // closed when the server closes the connection
	steps chan struct{} // an answer to the PING of a step
	flush func() error
}

// frames opens a connection, and reads what the server sends until the end.
func frames(t *testing.T, url string) *framer {
	t.Helper()
	c, in := dial(t, url)
	f := &framer{Framer: http2.NewFramer(c, in), c: c, ended: make(chan struct{})}
	f.enc = hpack.NewEncoder(&f.head)
	io.WriteString(c, http2.ClientPreface)
	f.WriteSettings()
	go f.listen()
	return f
}

// last is the data of the PING that the client sends last, and step of those before.
var last, step = [8]byte{1}, [8]byte{2}

// listen reads what the server sends until the end, or until its answer to the last PING.
func (f *framer) listen() {
	defer close(f.ended)
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			return
		}
		if p, ok := fr.(*http2.PingFrame); ok && p.IsAck() && p.Data == last {
			return
		} else if ok && p.IsAck() && p.Data == step {
			f.steps <- struct{}{}
		}
	}
}

// A counted is a buffer before a connection. It counts what was written.
type counted struct {
	*bufio.Writer
	sent int
}

func (w *counted) Write(b []byte) (int, error) {
	w.sent += len(b)
	return w.Writer.Write(b)
}

// A patient connection fails when the other end takes nothing for long, however much it has taken.
type patient struct{ net.Conn }

func (c patient) Write(b []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(patience))
	return c.Conn.Write(b)
}

// writer opens a connection that buffers in out what it sends.
func writer(t *testing.T, url string) (f *framer, out *counted) {
	t.Helper()
	c, in := dial(t, url)
	out = &counted{Writer: bufio.NewWriterSize(patient{c}, 64<<10)}
	f = &framer{Framer: http2.NewFramer(out, in), c: c, ended: make(chan struct{}),
		steps: make(chan struct{}, 1), flush: out.Flush}
	f.enc = hpack.NewEncoder(&f.head)
	io.WriteString(out, http2.ClientPreface)
	f.WriteSettings()
	return f, out
}

// heap returns the bytes of memory in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fields encodes a request with additional headers, as pairs "name value".
func (f *framer) fields(path string, more ...string) []byte {
	f.head.Reset()
	first := []string{":method GET", ":scheme http", ":authority x", ":path " + path}
	for _, pair := range append(first, more...) {
		name, value, _ := strings.Cut(pair, " ")
		f.enc.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	return f.head.Bytes()
}

func (f *framer) ask(id uint32, block []byte) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true,
		EndHeaders: true})
}

// inStep waits until this client has read the answers to what it has sent. A server ends the connection of
// a client that reads more slowly than it sends.
func (f *framer) inStep() error {
	f.WritePing(false, step)
	if err := f.flush(); err != nil {
		return err
	}
	select {
	case <-f.steps:
		return nil
	case <-f.ended:
		return io.EOF
	case <-time.After(patience):
		return os.ErrDeadlineExceeded
	}
}

// wholly waits until the server has closed the connection.
func (f *framer) wholly(t *testing.T, what string) {
	t.Helper()
	select {
	case <-f.ended:
	case <-time.After(patience):
		t.Fatalf("%s: the connection is still open", what)
	}
}

// Streams that are reset as soon as they are opened must not pile up at the origin.
func TestRapidReset(t *testing.T) {
	var now, most atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/slow") {
			return
		}
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-r.Context().Done()
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom)
	pass := get(t, visitors+"/", "").cookie
	f := frames(t, visitors)
	resets := uint32(5000)
	if testing.Short() {
		resets = 4 * maxStreams // the race detector slows each of them tenfold
	}
	for i := range resets {
		if f.ask(2*i+1, f.fields("/slow", "cookie "+pass)) != nil ||
			f.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
			break // the server has closed the connection
		}
	}
	if r := get(t, visitors+"/", pass); r.StatusCode != 200 {
		t.Errorf("somebody else gets %d", r.StatusCode)
	}
	f.c.Close()
	eventually(t, "ended at the origin", func() bool { return now.Load() == 0 })
	if got := most.Load(); got > 2*maxStreams {
		t.Errorf("%d at the same time at the origin", got)
	}
}

// A flood sends the same frame without end.
type flood struct {
	first func(f *framer)
	again func(f *framer, i uint32) error
	ends  bool // the client reads nothing, and net/http closes the connection
}

// floods returns all of them by name. The stream in question is 1.
func floods() map[string]flood {
	begin := func(f *framer) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.fields("/")})
	}
	ask := func(f *framer) { f.ask(1, f.fields("/robots.txt")) }
	body := func(f *framer) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.fields("/robots.txt"),
			EndHeaders: true})
	}
	set := func(f *framer, id http2.SettingID, to uint32) error {
		return f.WriteSettings(http2.Setting{ID: id, Val: to})
	}
	answered := func(again func(f *framer, i uint32) error) func(f *framer, i uint32) error {
		return func(f *framer, i uint32) error {
			if err := again(f, i); err != nil || i%1000 != 999 {
				return err
			}
			return f.inStep()
		}
	}
	zeros, ping := make([]byte, 1<<14), [8]byte{}
	secret := hpack.HeaderField{Name: "x-b", Value: strings.Repeat("b", 12<<10), Sensitive: true}
	return map[string]flood{
		"CONTINUATION": {begin, func(f *framer, _ uint32) error {
			f.head.Reset()
			f.enc.WriteField(secret)
			return f.WriteContinuation(1, false, f.head.Bytes())
		}, true},
		"empty CONTINUATION": {begin, func(f *framer, _ uint32) error {
			return f.WriteContinuation(1, false, nil)
		}, false},
		"PING":       {ask, func(f *framer, _ uint32) error { return f.WritePing(false, ping) }, true},
		"PING, read": {ask, answered(func(f *framer, _ uint32) error { return f.WritePing(false, ping) }), false},
		"SETTINGS":   {ask, answered(func(f *framer, _ uint32) error { return f.WriteSettings() }), false},
		"windows": {ask, answered(func(f *framer, i uint32) error {
			return set(f, http2.SettingInitialWindowSize, i)
		}), false},
		"WINDOW_UPDATE": {ask, func(f *framer, _ uint32) error { return f.WriteWindowUpdate(0, 1) }, false},
		"WINDOW_UPDATE when closed": {ask, func(f *framer, _ uint32) error {
			return f.WriteWindowUpdate(1, 1)
		}, false},
		"RST_STREAM": {ask, func(f *framer, _ uint32) error { return f.WriteRSTStream(1, 0) }, false},
		"PRIORITY": {ask, func(f *framer, i uint32) error { // of streams that do not exist
			return f.WritePriority(2*i+3, http2.PriorityParam{StreamDep: 2 * (i % 999), Weight: 9})
		}, false},
		"unknown":    {ask, func(f *framer, _ uint32) error { return f.WriteRawFrame(0xee, 0, 0, nil) }, false},
		"empty DATA": {body, func(f *framer, _ uint32) error { return f.WriteData(1, false, nil) }, false},
		"padding": {body, func(f *framer, _ uint32) error {
			return f.WriteDataPadded(1, false, nil, zeros[:9])
		}, false},
		"DATA when closed": {ask, func(f *framer, _ uint32) error { return f.WriteData(1, false, nil) }, true},
		"DATA when closed, read": {ask, answered(func(f *framer, i uint32) error {
			return f.WriteData(1, false, zeros[:i%9*1000+1000])
		}), false},
	}
}

// against floods a server, which must end the connection or take everything.
func (x flood) against(t *testing.T, url string, many int, ends bool, served func() error) {
	const (
		held  = 5 << 20  // bytes, which is 105 for each of 50,000 frames
		limit = 64 << 20 // bytes that no server should accept
	)
	f, out := writer(t, url)
	x.first(f)
	before, sent, err := heap(), out.sent, error(nil)
	if !x.ends {
		go f.listen()
	}
	for i := uint32(0); err == nil && (ends && out.sent-sent < limit || i < uint32(many)); i++ {
		if err = x.again(f, i); i == uint32(many)/2 {
			if err := served(); err != nil {
				t.Error("somebody else gets", err)
			}
		}
	}
	if ends != (err != nil) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("closed %v after %d bytes, want %v: %v", err != nil, out.sent-sent, ends, err)
	}
	if !ends { // the answer to a PING shows that everything before it was read
		f.WritePing(false, last)
		out.Flush()
		f.wholly(t, url)
	}
	if grown := heap() - before; grown > held {
		t.Errorf("%d MB are held", grown>>20)
	}
	f.c.Close()
	if err := served(); err != nil {
		t.Error("afterwards somebody else gets", err)
	}
}

// largeFrame announces a frame whose memory 10,000 connections could not all have.
func largeFrame(t *testing.T, url string) {
	f, out := writer(t, url)
	out.Flush()
	go f.listen()
	out.Write([]byte{0, 0x40, 1, 0xee, 0, 0, 0, 0, 0}) // 16,385 bytes
	out.Flush()
	f.wholly(t, "large frame")
}

// Endless frames occupy no memory and lock nobody out, at any of the listeners. At those of net/http
// a frame costs far less than a request: they end the connection only if the frames have a block of
// headers that is too large, or if the client does not read the answers. That of Envoy always ends
// it.
func TestFloodsOfFrames(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}))
	defer origin.Close()
	many := 50_000
	if testing.Short() { // the race detector slows each frame tenfold
		many /= 10
	}
	rules := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(rules, []byte("domain: api\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	site := startTLS(t, origin.URL, files+"  redirect: false\n"+
		"envoy: {listen: 127.0.0.1:0, rules: ["+rules+"]}\n")
	for _, l := range []struct {
		name, url, path string
		ends            bool
	}{
		{"visitors", "http://" + site.Addr().String(), "/robots.txt", false},
		{"visitors by TLS", "https://" + site.TLSAddr().String(), "/robots.txt", false},
		{"operators", "http://" + site.AdminAddr().String(), "/readyz", false},
		{"Envoy", "http://" + site.EnvoyAddr().String(), "", true},
	} {
		t.Run(l.name+"/large frame", func(t *testing.T) { largeFrame(t, l.url) })
		served := func() error { return site.served(t, l.url+l.path) }
		if l.path == "" {
			served = healthy(t, site.EnvoyAddr().String())
		}
		for what, x := range floods() {
			t.Run(l.name+"/"+what, func(t *testing.T) { x.against(t, l.url, many, x.ends || l.ends, served) })
		}
	}
}

// A header block of a few kB that expands to 64 MB is not expanded.
func TestHeaderBomb(t *testing.T) {
	var asked atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Bomb") != "" {
			asked.Add(1)
		}
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom)
	f := frames(t, visitors)
	bomb := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("a", 3000)}
	f.fields("/robots.txt")
	f.enc.WriteField(bomb) // into the table
	for f.head.Len() < 16<<10 {
		f.enc.WriteField(bomb) // one byte each
	}
	block := f.head.Bytes()
	f.ask(1, block[:min(len(block), 16<<10)])
	if r := get(t, visitors+"/robots.txt", ""); r.StatusCode != 200 || asked.Load() != 0 {
		t.Errorf("%d for somebody else, %d bombs at the origin", r.StatusCode, asked.Load())
	}
	f.c.Close()
	f.wholly(t, "bomb")
}

// answer sends a request whose header block is cut into pieces, and reads the answer to it.
func (f *framer) answer(t *testing.T, out *counted, block []byte, piece int) (status, body string) {
	t.Helper()
	first := block[:min(piece, len(block))]
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndStream: true})
	for rest := range slices.Chunk(block[len(first):], piece) {
		f.WriteContinuation(1, false, rest)
	}
	f.WriteContinuation(1, true, nil)
	out.Flush()
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch fr := fr.(type) {
		case *http2.MetaHeadersFrame:
			status = fr.PseudoValue("status")
		case *http2.DataFrame:
			body += string(fr.Data())
		}
		if fr.Header().Flags.Has(http2.FlagDataEndStream) && fr.Header().StreamID == 1 {
			return status, body
		}
	}
}

// HTTP/2 clients may split a Cookie header into several fields (RFC 9113 §8.2.3), and fields into
// several frames. A pass and a ticket are found among other cookies and among others of their name,
// and nothing else is one.
func TestCookieCrumbs(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "inside ", strings.Join(r.Header["Cookie"], "; "))
	}))
	defer origin.Close()
	visitors, operators, _ := start(t, origin.URL, "  - {name: shop, origin: ORIGIN, "+
		"total_active_users: 1, new_users_per_minute: 100, session_duration: 1h}\n")
	pass := get(t, visitors+"/", "").cookie
	wait := get(t, visitors+"/", "")
	name, _, _ := strings.Cut(pass, "=")
	var many, forged []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("c%d=%s", i, strings.Repeat("v", 20)))
		forged = append(forged, fmt.Sprintf("%s=%03d%s", name, i, pass[len(name)+4:]))
	}
	large := strings.Repeat("v", 5000)
	// ask sends cookies by HTTP/2 in pieces of a number of bytes, or by HTTP/1.1.
	ask := func(piece int, cookies []string, more ...string) (status, body string) {
		for _, c := range cookies {
			more = append(more, "cookie "+c)
		}
		if piece > 0 {
			f, out := writer(t, visitors)
			defer f.c.Close()
			return f.answer(t, out, f.fields("/", more...), piece)
		}
		var lines strings.Builder
		for _, pair := range more {
			lines.WriteString(strings.Replace(pair, " ", ": ", 1) + "\r\n")
		}
		res := askRaw(t, visitors, "GET / HTTP/1.1\r\nHost: x\r\n"+lines.String()+"\r\n")
		b, _ := io.ReadAll(res.Body)
		return strconv.Itoa(res.StatusCode), string(b)
	}
	ticketOf := func(body string) string {
		_, ticket, _ := strings.Cut(body, `"ticket":"`)
		ticket, _, _ = strings.Cut(ticket, `"`)
		return ticket
	}
	poll := []string{"headgate-poll 1", "accept application/json"}
	_, body := ask(0, []string{wait.cookie}, poll...)
	place := ticketOf(body)
	for what, sent := range map[string]struct{ before, after []string }{
		"alone":             {},
		"among many":        {many[:150], many[150:]},
		"among large ones":  {[]string{"a=" + large}, []string{"b=" + large, "c=" + large}},
		"behind a large":    {[]string{name + "=" + large}, nil},
		"before a large":    {nil, []string{name + "=" + large}},
		"among forged ones": {forged[:100], forged[100:200]},
		"among empty ones":  {[]string{name + "=", ";", ""}, []string{name + "=", name, "=", ";;"}},
		"in an odd field":   {[]string{"a=b;;; c=d;"}, []string{"; e=f"}},
	} {
		own := strings.Join(slices.Concat(sent.before, sent.after), "; ")
		for _, piece := range []int{0, 1, 7, 1000, 1 << 14} {
			all := slices.Concat(sent.before, []string{pass}, sent.after)
			one := []string{strings.Join(all, "; ")}
			for _, cookies := range [][]string{all, one, slices.Concat(all, []string{pass})} {
				if status, body := ask(piece, cookies); status != "200" || !strings.HasPrefix(body, "inside ") {
					t.Errorf("%s, pieces of %d: a pass gets %s", what, piece, status)
				} else if strings.Contains(body, name) ||
					strings.HasPrefix(own, "c0=") && body != "inside "+own {
					t.Errorf("%s: the origin reads %.500q", what, body)
				}
			}
			all = slices.Concat(sent.before, []string{wait.cookie}, sent.after)
			if status, body := ask(piece, all, poll...); ticketOf(body) != place || place == "" {
				t.Errorf("%s, pieces of %d: a ticket gets %s %q", what, piece, status, ticketOf(body))
			}
		}
	}
	for what, cookies := range map[string][]string{
		"in two fields":   {pass[:40], pass[40:]},
		"with a space":    {pass[:40] + " " + pass[40:]},
		"cut":             {pass[:len(pass)-1]},
		"continued":       {pass + large},
		"of another name": {"x" + pass},
		"upper case":      {strings.ToUpper(name) + pass[len(name):]},
		"in a value":      {"a=" + pass},
		"many forged":     forged[:200],
	} {
		for _, piece := range []int{0, 7, 1 << 14} {
			if status, _ := ask(piece, cookies); status != "503" {
				t.Errorf("a pass %s gets %s", what, status)
			}
		}
	}
	if s := roomStatus(t, operators); s.ActiveUsers != 1 {
		t.Errorf("%d inside", s.ActiveUsers)
	}
}

// A request that HTTP/1.1 cannot express must not become two of its requests.
func TestNoRequestWithinAStream(t *testing.T) {
	o, url := record(t)
	visitors, _, _ := start(t, url, oneRoom)
	const smuggled = "\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, more := range []string{"x-a b" + smuggled, "x-a b\nx-c: d", "transfer-encoding chunked",
		"connection close", "content-length 5", "x\r\ny z", "upgrade h2c", "host y" + smuggled,
		"te gzip", "X-Upper a", "x-a b\x00c"} {
		f := frames(t, visitors)
		f.ask(1, f.fields("/robots.txt", more))
		f.ask(3, f.fields("/favicon.ico"))
		eventually(t, "served or closed", func() bool {
			select {
			case <-f.ended:
				return true
			default:
				return len(o.of("/favicon.ico")) > 0
			}
		})
		f.c.Close()
		<-f.ended
	}
	paths := []string{"/robots.txt" + smuggled, "/a b HTTP/1.1" + smuggled, "http://x/whole", "//"} // the third is a request
	for _, path := range paths {
		f := frames(t, visitors)
		f.ask(1, f.fields(path))
		f.c.Close()
		<-f.ended
	}
	for _, m := range o.of("") {
		bad := oneMessage(m)
		if bad != "" || strings.Contains(m, "x-c") || strings.Contains(m, "GET /hidden") {
			t.Errorf("%s: %q", bad, m)
		}
	}
}

// served sends a request as another client.
func (site *secureSite) served(t *testing.T, url string) error {
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		return err
	}
	res, err := site.client.Do(r)
	if err != nil {
		return err
	}
	if res.Body.Close(); res.StatusCode != 200 {
		return errors.New(res.Status)
	}
	return nil
}

// healthy returns a function that calls Envoy's service as another client.
func healthy(t *testing.T, addr string) func() error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func() error {
		_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	}
}

// dial opens a connection to a server under test, by HTTP/2 if it is one with TLS.
func dial(t *testing.T, url string) (c net.Conn, in *bufio.Reader) {
	t.Helper()
	var err error
	if addr, ok := strings.CutPrefix(url, "https://"); ok {
		c, err = tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	} else {
		c, err = net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// askRaw sends the bytes of one request and returns its answer.
func askRaw(t *testing.T, url, text string) *http.Response {
	t.Helper()
	c, in := dial(t, url)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return res
}

const (
	toWebSocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	toH2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
)

// Requests inside a tunnel would not be counted. The origin is Go's own server, which supports h2c.
func TestNoTunnelThroughAnExcludedRequest(t *testing.T) {
	var upgrades atomic.Int64
	//nolint:staticcheck // nothing else upgrades to h2c, as old origins do
	speaks := h2c.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "websocket" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	}), &http2.Server{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header["Upgrade"] != nil || r.Header["Http2-Settings"] != nil || r.Header["Connection"] != nil {
			upgrades.Add(1)
		}
		speaks.ServeHTTP(w, r)
	}))
	defer origin.Close()
	if res := askRaw(t, origin.URL, "GET / HTTP/1.1\r\nHost: x\r\n"+toH2C+"\r\n"); res.StatusCode != 101 {
		t.Fatalf("the origin does not speak h2c: %d", res.StatusCode)
	}
	const more = "  - {name: off, path: /off, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 1, " +
		"suspended: true}\n  - {name: open, path: /open, origin: ORIGIN, total_active_users: 1, " +
		"new_users_per_minute: 1, exclude: {paths: [/open/], upgrade: true}}\n" +
		"  - {name: rule, path: /rule, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 1, " +
		"rules: [{action: bypass, expression: 'http.request.method != \"PUT\"'}]}\n"
	visitors, _, _ := start(t, origin.URL, oneRoom+more)
	pass := "Cookie: " + get(t, visitors+"/", "").cookie + "\r\n"
	for _, x := range []struct {
		what, line, headers string
		want                int
	}{
		{"excluded, h2c", "GET /robots.txt", toH2C, 200},
		{"excluded, WebSocket", "GET /robots.txt", toWebSocket, 200},
		{"inside, h2c", "GET /", pass + toH2C, 200},
		{"inside, both", "GET /", pass + "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\nSec-WebSocket-Key: x\r\n", 200},
		{"inside, two lines", "GET /", pass + toWebSocket + toH2C, 200},
		{"inside, h2c without Connection", "GET /", pass + "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", 200},
		{"inside, settings alone", "GET /", pass + "HTTP2-Settings: AAMAAABk\r\n", 200},
		{"inside, by POST", "POST /", pass + "Content-Length: 0\r\n" + toWebSocket, 200},
		{"inside, no key", "GET /", pass + "Connection: Upgrade\r\nUpgrade: websocket\r\n", 200},
		{"inside, WebSocket", "GET /", pass + toWebSocket, 101},
		{"suspended, h2c", "GET /off", toH2C, 200},
		{"suspended, WebSocket", "GET /off", toWebSocket, 101},
		{"bypass, WebSocket", "GET /rule", toWebSocket, 200},
		{"excluded with upgrade, h2c", "GET /open/x", toH2C, 200},
		{"excluded with upgrade, WebSocket", "GET /open/x", toWebSocket, 101},
	} {
		upgrades.Store(0)
		res := askRaw(t, visitors, x.line+" HTTP/1.1\r\nHost: x\r\n"+x.headers+"\r\n")
		if res.StatusCode != x.want {
			t.Errorf("%s: %d, want %d", x.what, res.StatusCode, x.want)
		}
		if got := upgrades.Load(); got > 0 != (x.want == 101) {
			t.Errorf("%s: the origin was asked %d times to switch", x.what, got)
		}
	}
}

// An origin that switches protocols without a request to do so opens no tunnel either.
func TestAnOriginThatSwitchesUnasked(t *testing.T) {
	for _, head := range []string{"", "Connection: Upgrade\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n",
		"Connection: Upgrade\r\nUpgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: \r\n"} {
		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\n%s\r\nHTTP/1.1 200 OK\r\n\r\n", head)
		}))
		visitors, _, _ := start(t, origin.URL, oneRoom)
		pass := "Cookie: " + get(t, visitors+"/", "").cookie + "\r\n"
		for _, ask := range []string{"GET /robots.txt HTTP/1.1\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost: x\r\n" + pass,
			"GET / HTTP/1.1\r\nHost: x\r\n" + pass + toH2C} {
			c, in := dial(t, visitors)
			io.WriteString(c, ask+"\r\n")
			res, err := http.ReadResponse(in, nil)
			if err != nil || res.StatusCode != 502 {
				t.Errorf("%q after %q: %v %v", head, ask, res, err)
			}
		}
		origin.Close()
	}
}

// ReverseProxy adds the headers of a 101 after Hijack, when the room has read the commands of the
// answer: revoke reached the visitor and ended nothing.
func TestA101RevokesAndTellsNobody(t *testing.T) {
	for _, name := range []string{"Headgate-Command", "cf-waiting-room-command"} {
		origin, heads := rawOrigin(t, "HTTP/1.1 101 Switching Protocols\r\n"+
			"Connection: Upgrade\r\nUpgrade: websocket\r\n"+name+": revoke\r\nX-Own: kept\r\n\r\nframes")
		visitors, operators, _ := start(t, origin, oneRoom)
		c, in := dial(t, visitors)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+toWebSocket+"\r\n")
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols ||
			res.Header.Get("X-Own") != "kept" {
			t.Fatalf("%v %v", res, err)
		}
		<-heads
		if res.Header.Get(name) != "" {
			t.Errorf("the visitor reads %s", name)
		}
		if got := roomStatus(t, operators).Totals.Revoked; got != 1 {
			t.Errorf("%s: %d sessions were ended", name, got)
		}
		frames := make([]byte, 6)
		if _, err := io.ReadFull(in, frames); err != nil || string(frames) != "frames" {
			t.Errorf("%s: %q %v", name, frames, err)
		}
	}
}

// okAnswer is a short answer of an origin.
const okAnswer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"

// rawOrigin records the bytes that headgate sends, and gives the same answer to each request, on a
// connection of its own.
func rawOrigin(t *testing.T, answer string) (url string, heads <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			var all strings.Builder
			r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(in, &all)))
			if err == nil {
				io.Copy(io.Discard, r.Body)
				io.WriteString(c, answer)
				got <- all.String()
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String(), got
}

// CGI, WSGI and Rack read X_Forwarded_For as X-Forwarded-For.
func TestOtherSpellingsOfOurHeadersStopHere(t *testing.T) {
	url, heads := rawOrigin(t, okAnswer)
	visitors, _, _ := start(t, url, oneRoom)
	const forged = "X_Forwarded_For: 6.6.6.6\r\nx.forwarded.proto: 6.6.6.6\r\nX-Forwarded_Host: 6.6.6.6\r\n" +
		"X_Real_IP: 6.6.6.6\r\nX-Real-Ip: 6.6.6.6\r\nX-Forwarded-Port: 6.6.6.6\r\nHeadgate_Pass: 6.6.6.6\r\n" +
		"Headgate.Pass: 6.6.6.6\r\nCf_Waiting_Room_Command: 6.6.6.6\r\nTransfer_Encoding: 6.6.6.6\r\n" +
		"Content_Length: 6.6.6.6\r\nX~Forwarded!For: 6.6.6.6\r\n"
	send := "POST / HTTP/1.1\r\nHost: x\r\nX_Shop: kept\r\n" + forged +
		"Transfer-Encoding: chunked\r\nTrailer: X_Forwarded_For, X-Forwarded-For\r\n\r\n" +
		"1\r\na\r\n0\r\nX_Forwarded_For: 6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
	if res := askRaw(t, visitors, send); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	h1 := <-heads
	r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+"/robots.txt", nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(forged + "X_Shop: kept\r\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		r.Header[strings.ToLower(name)] = []string{value}
	}
	h2, err := overH2C(t).RoundTrip(r)
	if err != nil || h2.ProtoMajor != 2 || h2.StatusCode != 200 {
		t.Fatal(h2, err)
	}
	h2.Body.Close()
	for proto, text := range map[string]string{"HTTP/1.1": h1, "HTTP/2": <-heads} {
		if strings.Contains(text, "6.6.6.6") || strings.Contains(text, "Trailer: X") {
			t.Errorf("by %s the origin reads\n%s", proto, text)
		}
		if !strings.Contains(strings.ToLower(text), "x_shop: kept") {
			t.Errorf("by %s a header of the site's own is lost:\n%s", proto, text)
		}
	}
}

// overH2C is a transport for HTTP/2 without TLS.
func overH2C(t *testing.T) *http.Transport {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}
