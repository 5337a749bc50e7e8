package unary

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/test/bufconn"
)

// A violation of RFC 9113 ends the stream or the connection.
func TestBrokenRules(t *testing.T) {
	const protocol = "PROTOCOL_ERROR"
	get := func(fields ...string) func(*peer) { return func(p *peer) { p.call(1, true, fields...) } }
	begun := func(more func(p *peer)) func(*peer) {
		return func(p *peer) {
			p.call(1, false)
			more(p)
		}
	}
	echoed := func(id uint32, more func(p *peer)) func(*peer) {
		return func(p *peer) {
			p.echo(id)
			more(p)
		}
	}
	most := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}
	more := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}
	for name, c := range map[string]struct {
		send func(p *peer)
		want string
	}{
		"connection":  {get("connection", "close"), "RST 1 " + protocol},
		"te":          {get("te", "gzip"), "RST 1 " + protocol},
		"upper case":  {get("Upper", "x"), "RST 1 " + protocol},
		"no path":     {get(":path", ""), "RST 1 " + protocol},
		"no method":   {get(":method", ""), "RST 1 " + protocol},
		"no scheme":   {get(":scheme", ""), "RST 1 " + protocol},
		"pseudo":      {get(":status", "200"), "RST 1 " + protocol},
		"length":      {get("content-length", "5"), "RST 1 " + protocol},
		"no length":   {get("content-length", "-1"), "RST 1 " + protocol},
		"even":        {func(p *peer) { p.call(2, true) }, "GOAWAY 0 " + protocol},
		"data, idle":  {func(p *peer) { p.WriteData(1, true, nil) }, "GOAWAY 0 " + protocol},
		"reset, idle": {func(p *peer) { p.WriteRSTStream(1, 0) }, "GOAWAY 0 " + protocol},
		"to idle":     {func(p *peer) { p.WriteWindowUpdate(1, 1) }, "GOAWAY 0 " + protocol},
		"window":      {func(p *peer) { p.WriteWindowUpdate(0, 1<<31-1) }, "GOAWAY 0 FLOW_CONTROL_ERROR"},
		"of a stream": {begun(func(p *peer) { p.WriteWindowUpdate(1, 1<<31-1) }), "RST 1 FLOW_CONTROL_ERROR"},
		"no window":   {begun(func(p *peer) { p.WriteWindowUpdate(1, 0) }), "RST 1 " + protocol},
		"all windows": {begun(func(p *peer) {
			p.WriteWindowUpdate(1, 1)
			p.WriteSettings(most)
			p.says("SETTINGS ack")
		}), "GOAWAY 1 FLOW_CONTROL_ERROR"},
		"setting": {func(p *peer) { p.WriteSettings(more) }, "GOAWAY 0 FLOW_CONTROL_ERROR"},
		"push": {func(p *peer) {
			p.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, "GOAWAY 0 " + protocol},
		"large frame": {func(p *peer) {
			p.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<14+1))
		}, "GOAWAY 0 FRAME_SIZE_ERROR"},
		"alone": {func(p *peer) { p.WriteContinuation(1, true, nil) }, "GOAWAY 0 " + protocol},
		"between": {func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1})
			p.WriteData(1, true, nil)
		}, "GOAWAY 0 " + protocol},
		"hpack": {func(p *peer) {
			p.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0xff, 0xff, 0xff})
		}, "GOAWAY 0 COMPRESSION_ERROR"},
		"itself": {func(p *peer) {
			p.WritePriority(1, http2.PriorityParam{StreamDep: 1})
		}, "RST 1 " + protocol},
		"itself, again": {func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields(), EndHeaders: true,
				Priority: http2.PriorityParam{StreamDep: 1}})
		}, "RST 1 " + protocol},
		"backwards": {echoed(3, func(p *peer) { p.call(1, true) }), "GOAWAY 3 " + protocol},
		"again":     {echoed(3, func(p *peer) { p.call(3, true) }), "GOAWAY 3 STREAM_CLOSED"},
		"over":      {echoed(1, func(p *peer) { p.WriteData(1, true, nil) }), "RST 1 STREAM_CLOSED"},
		"reset": {begun(func(p *peer) {
			p.WriteRSTStream(1, 0)
			p.WriteData(1, true, nil)
		}), "RST 1 STREAM_CLOSED"},
		"trailers": {begun(func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
		}), "RST 1 " + protocol},
		"pseudos": {begun(func(p *peer) { p.call(1, true) }), "RST 1 " + protocol},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *peer) {
				c.send(p)
				if p.says(c.want); strings.HasPrefix(c.want, "RST") {
					p.echo(5)
				} else {
					p.says("end")
				}
			})
		})
	}
	for name, text := range map[string]string{"HTTP/1.1": "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"no settings": http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, false, func(t *testing.T, p *peer) {
				p.Close()
				p.dial()
				io.WriteString(p.Conn, text)
				p.next()
				p.says("WINDOW_UPDATE 0 4128769", "GOAWAY 0 PROTOCOL_ERROR", "end")
			})
		})
	}
}

// A peer learns why its connection ends, also if an answer is being written at that moment.
func TestGoodbyeDuringAnAnswer(t *testing.T) {
	bubble(t, true, func(t *testing.T, p *peer) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 4 * maxMessage})
		p.says("SETTINGS ack")
		p.WriteWindowUpdate(0, 4*maxMessage)
		const more = maxMessage - 9
		for id := uint32(1); id <= 5; id += 2 { // more than the pipe holds
			p.call(id, false, ":path", "/x.Y/Zeros")
			p.WriteData(id, true, msg(string(binary.BigEndian.AppendUint32(nil, more))))
		}
		synctest.Wait() // a worker is writing
		p.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		synctest.Wait()
		last := ""
		for f := p.next(); f != "end"; f = p.next() {
			last = f
		}
		if want := "GOAWAY 5 PROTOCOL_ERROR"; last != want {
			t.Errorf("the last frame is %.100s, want %s", last, want)
		}
	})
}

// Frames without a call are tolerated for a while.
func TestFloods(t *testing.T) {
	stream := uint32(1)
	for name, c := range map[string]struct {
		send  func(p *peer)
		least int // number of tolerated frames
		most  int
	}{
		"pings":      {func(p *peer) { p.WritePing(false, [8]byte{}) }, 3, 3},
		"answers":    {func(p *peer) { p.WritePing(true, [8]byte{}) }, 900, 1001},
		"settings":   {func(p *peer) { p.WriteSettings() }, 900, 1001},
		"acks":       {func(p *peer) { p.WriteSettingsAck() }, 900, 1001},
		"windows":    {func(p *peer) { p.WriteWindowUpdate(0, 1) }, 900, 1001},
		"priorities": {func(p *peer) { p.WritePriority(9, http2.PriorityParam{}) }, 900, 1001},
		"unknown":    {func(p *peer) { p.WriteRawFrame(0xee, 0, 0, nil) }, 900, 1001},
		"no data":    {func(p *peer) { p.WriteData(1, false, nil) }, 900, 1001},
		"padding":    {func(p *peer) { p.WriteDataPadded(1, false, nil, make([]byte, 255)) }, 900, 1001},
		"resets": {func(p *peer) {
			stream += 2
			p.call(stream, false)
			p.WriteRSTStream(stream, 0)
		}, 900, 1001},
		"faulty":       {func(p *peer) { stream += 2; p.call(stream, false, "te", "x") }, 900, 1001},
		"closed":       {func(p *peer) { p.WriteData(3, true, nil) }, 900, 1001},
		"closed, 16 K": {func(p *peer) { p.WriteData(3, false, make([]byte, frameSize)) }, 900, 1001},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, true, func(t *testing.T, p *peer) {
				stream = 3
				p.call(1, false)
				p.call(3, false)
				p.WriteRSTStream(3, 0)
				synctest.Wait()
				frames := make(chan string, 100_000)
				go func() {
					for f := ""; f != "end"; {
						f = p.next()
						frames <- f
					}
					close(frames)
				}()
				n := 0
				for away := ""; n <= c.most && away == ""; n++ {
					c.send(p)
					synctest.Wait()
					for len(frames) > 0 && away == "" {
						if f := <-frames; strings.HasPrefix(f, "GOAWAY") {
							away = f
						}
					}
					if away != "" {
						n--
						if !strings.HasSuffix(away, " ENHANCE_YOUR_CALM too_many_pings") {
							t.Error(away)
						}
					}
				}
				if n < c.least || n > c.most {
					t.Errorf("borne %d times, want %d to %d", n, c.least, c.most)
				}
				for range frames { // to the end
				}
			})
		})
	}
}

// A flood of CONTINUATION frames ends soon, also of empty ones, and so does a block that is much too
// large.
func TestContinuations(t *testing.T) {
	for name, c := range map[string]struct {
		block []byte
		most  int // number of tolerated frames
		want  string
	}{
		"large": {bytes.Repeat([]byte{0x40, 1, 'x', 1, 'y'}, 3000), 3, "PROTOCOL_ERROR"},
		"small": {[]byte{0x40, 1, 'x', 1, 'y'}, maxBlock/14 + 3, "PROTOCOL_ERROR"},
		"empty": {nil, maxBlock/9 + 3, "ENHANCE_YOUR_CALM too_many_pings"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, false, func(t *testing.T, p *peer) {
				p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields()})
				n, ended := 0, make(chan struct{})
				go func() {
					defer close(ended)
					p.says("GOAWAY 0 "+c.want, "end")
				}()
				for ; n <= c.most && p.WriteContinuation(1, false, c.block) == nil; n++ {
					synctest.Wait()
				}
				if n > c.most {
					t.Errorf("more than %d frames are accepted", c.most)
				}
				p.Close()
				<-ended
			})
		})
	}
	inBubble(t, func(t *testing.T, p *peer) { // a call in very small pieces is a call
		for id := uint32(1); id < 99; id += 2 {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: id})
			for _, b := range bytes.Clone(p.fields()) {
				p.WriteContinuation(id, false, []byte{b})
			}
			p.WriteContinuation(id, true, nil)
			p.WriteData(id, true, msg("abc"))
			p.answers(id, "abc")
		}
	})
}

// A client that calls what does not exist gets its errors, however often it calls.
func TestFailedCallsAreNoFlood(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		for id := uint32(1); id < 6000; id += 2 {
			p.call(id, false, ":method", "GET")
			p.says(fmt.Sprintf("HEADERS %d :status 405 end", id), fmt.Sprintf("RST %d NO_ERROR", id))
			p.WriteData(id, true, msg(strings.Repeat("x", 300))) // less than a window in all
		}
	})
}

// Normal frames of clients with calls are not a flood.
func TestManyCallsAreNoFlood(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		for id := uint32(1); id < 10_000; id += 2 {
			p.echo(id)
			p.WritePing(false, [8]byte{})
			p.says(`PING true "\x00\x00\x00\x00\x00\x00\x00\x00"`)
			p.WriteWindowUpdate(0, 8)
			p.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		for id := uint32(10_001); id < 10_040; id += 2 { // failures are answered too
			p.call(id, false, ":method", "GET")
			p.says(fmt.Sprintf("HEADERS %d :status 405 end", id), fmt.Sprintf("RST %d NO_ERROR", id))
			p.WritePing(false, [8]byte{})
			p.says(`PING true "\x00\x00\x00\x00\x00\x00\x00\x00"`)
		}
		for range 30 { // keepalive
			time.Sleep(10 * time.Second)
			p.WritePing(false, [8]byte{})
			p.says(`PING true "\x00\x00\x00\x00\x00\x00\x00\x00"`)
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		for i := range uint32(maxStreams) {
			p.call(2*i+1, false)
		}
		p.call(2049, false)
		p.says("RST 2049 REFUSED_STREAM")
		p.WriteRSTStream(2047, http2.ErrCodeCancel)
		p.echo(2051)
	})
	// A canceled call counts as long as it is in progress.
	release := make(chan struct{})
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{})
		p := peerOf(t, Config{Delay: true, Methods: map[string]Method{
			"/x.Y/Echo": func(_ context.Context, _, answer []byte) ([]byte, error) {
				<-release
				return answer, nil
			}}})
		for i := range uint32(maxStreams) {
			p.call(2*i+1, false)
			p.WriteData(2*i+1, true, msg(""))
			synctest.Wait() // it is in progress
			p.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
		p.call(2049, false)
		p.says("RST 2049 REFUSED_STREAM")
		close(release)
		synctest.Wait()
		p.call(2051, false)
		p.WriteData(2051, true, msg(""))
		p.answers(2051, "")
	})
}

// A thousand calls in sequence must not each keep a large buffer.
func TestLargeCallsAreForgotten(t *testing.T) {
	c := newConn(&server{}, &fed{})
	for _, size := range []int{1 << 10, 8 << 10, 1 << 20} {
		c.release(&stream{msg: make([]byte, size)})
	}
	for _, s := range c.spare {
		if cap(s.msg) > 4<<10 {
			t.Errorf("%d bytes are kept", cap(s.msg))
		}
	}
	if len(c.spare) != 3 || cap(c.spare[0].msg) == 0 {
		t.Error("what is small is not kept")
	}
	for range maxStreams { // nor small ones in large numbers
		c.release(&stream{msg: make([]byte, 4<<10)})
	}
	all := 0
	for _, s := range c.spare {
		all += cap(s.msg)
	}
	if all > 128<<10 {
		t.Errorf("%d bytes are kept of %d calls", all, maxStreams)
	}
}

func TestWindowsOfThePeer(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 99},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		p.says("SETTINGS ack")
		p.call(1, false)
		p.WriteData(1, true, msg("abc"))
		const head = "HEADERS 1 :status 200 content-type application/grpc"
		p.says(head)
		p.WriteWindowUpdate(1, 1)
		p.says(`DATA 1 "\x00"`)
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 6})
		p.says("SETTINGS ack", `DATA 1 "\x00\x00\x00\x03ab"`)
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		p.says("SETTINGS ack")
		p.WriteWindowUpdate(1, 6)
		p.says(`DATA 1 "c"`, "HEADERS 1 grpc-status 0 end")
		// An answer that the peer does not accept is dropped after a time.
		p.call(3, false)
		p.WriteData(3, true, msg("abc"))
		began := time.Now()
		p.says(strings.ReplaceAll(head, " 1 ", " 3 "), `DATA 3 "\x00"`, "RST 3 CANCEL")
		p.after(began, 10*time.Second)
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		p.says("SETTINGS ack")
		// The window of the connection: 65,535 minus 9.
		p.call(5, false, ":path", "/x.Y/Zeros")
		p.WriteData(5, true, msg(string(binary.BigEndian.AppendUint32(nil, 70_000))))
		p.says(strings.ReplaceAll(head, " 1 ", " 5 "))
		for got := 0; got < 65_526; {
			f, err := p.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			got += int(f.Header().Length)
		}
		p.WritePing(false, [8]byte([]byte("no more?")))
		p.says(`PING true "no more?"`)
		p.WriteWindowUpdate(0, 1<<20)
		p.says(fmt.Sprintf("DATA 5 %q", make([]byte, 70_005-65_526)))
		p.says("HEADERS 5 grpc-status 0 end")
	})
	// Waiting answers are bounded.
	inBubble(t, func(t *testing.T, p *peer) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		p.says("SETTINGS ack")
		for id := uint32(1); id < 9; id += 2 {
			p.call(id, false, ":path", "/x.Y/Zeros")
			p.WriteData(id, true, msg(string(binary.BigEndian.AppendUint32(nil, 1<<20-1))))
			p.says(fmt.Sprintf("HEADERS %d :status 200 content-type application/grpc", id))
		}
		p.says("RST 7 ENHANCE_YOUR_CALM")
		p.WriteRSTStream(1, http2.ErrCodeCancel)
		p.call(9, false, ":path", "/x.Y/Zeros")
		p.WriteData(9, true, msg(string(binary.BigEndian.AppendUint32(nil, 400_000))))
		p.says("HEADERS 9 :status 200 content-type application/grpc")
		p.WriteWindowUpdate(9, 5)
		p.says(`DATA 9 "\x00\x00\x06\x1a\x80"`)
	})
}

func TestWindowsOfOurs(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		text := strings.Repeat("x", maxMessage/2)
		for id := uint32(1); id < 40; id += 2 { // 10 MB in all, with a window of 4 MB
			p.call(id, false, ":path", "/x.Y/Fail")
			b := msg(text)
			for ; len(b) > 1<<14; b = b[1<<14:] {
				p.WriteData(id, false, b[:1<<14])
			}
			p.WriteData(id, true, b)
			f := p.next()
			for strings.HasPrefix(f, "WINDOW_UPDATE 0") {
				f = p.next()
			}
			if !strings.HasPrefix(f, fmt.Sprintf("HEADERS %d :status 200", id)) {
				t.Fatalf("%.100s", f)
			}
		}
		// Calls that never become complete fill the window, and not more.
		for id := uint32(101); ; id += 2 {
			p.call(id, false)
			b := msg(strings.Repeat("x", maxMessage))
			for i := range 32 {
				p.WriteData(id, false, b[i<<14:(i+1)<<14])
			}
			synctest.Wait()
			if id == 101+20 {
				break
			}
		}
		for f := ""; f != "end"; {
			if f = p.next(); strings.HasPrefix(f, "GOAWAY") && !strings.HasSuffix(f, " FLOW_CONTROL_ERROR") {
				t.Error(f)
			}
		}
	})
}

// peerOf returns a peer with its own server.
func peerOf(t *testing.T, cfg Config) *peer {
	p := &peer{TB: t, lis: bufconn.Listen(1 << 20)}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- Serve(ctx, p.lis, cfg) }()
	t.Cleanup(func() {
		p.Close()
		stop()
		<-ended
	})
	p.dial()
	p.begin()
	return p
}

// FuzzConn sends arbitrary bytes to a connection: it must end, and nothing may be left behind.
func FuzzConn(f *testing.F) {
	var b bytes.Buffer
	p := &peer{TB: f, Framer: http2.NewFramer(&b, nil)}
	p.enc = hpack.NewEncoder(&p.block)
	for _, hello := range []string{"", http2.ClientPreface} {
		b.Reset()
		b.WriteString(hello)
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
		p.call(1, false, "grpc-timeout", "1S")
		p.WriteData(1, true, msg("abc"))
		p.WritePing(false, [8]byte{})
		p.call(3, false, "content-length", "8")
		p.WriteDataPadded(3, false, msg("abc")[:5], make([]byte, 9))
		p.WriteWindowUpdate(0, 1000)
		p.WriteWindowUpdate(1, 1)
		p.WriteRSTStream(1, 0)
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, EndHeaders: true, EndStream: true})
		p.WritePriority(5, http2.PriorityParam{StreamDep: 7})
		p.WriteGoAway(0, 0, nil)
		f.Add(bytes.Clone(b.Bytes()), byte(0))
		f.Add(append([]byte(hello), b.Bytes()...), byte(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, how byte) {
		synctest.Test(t, func(t *testing.T) {
			c := &fed{b: b, size: int(how>>1)%64 + 1}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s := newServer(Config{Methods: methods(), Delay: how&1 == 1})
			s.soft, s.hard = ctx, ctx
			conn := newConn(s, c)
			conn.serve()
			if n := cap(conn.out) + cap(conn.other); n > 2*keptMemory+16*len(b) {
				t.Errorf("%d bytes are held for %d", n, len(b))
			}
			if conn.open != 0 && len(conn.streams) == 0 {
				t.Errorf("%d streams are open", conn.open)
			}
		})
	})
}

// A fed is a connection that delivers bytes, a few at a time, and accepts all writes.
type fed struct {
	net.Conn
	b    []byte
	size int
}

func (c *fed) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), c.size)], c.b)
	if c.b = c.b[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (*fed) Write(p []byte) (int, error)      { return len(p), nil }
func (*fed) Close() error                     { return nil }
func (*fed) SetReadDeadline(time.Time) error  { return nil }
func (*fed) SetWriteDeadline(time.Time) error { return nil }
