package unary

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		for id := uint32(1); id < 99; id += 2 {
			p.echo(id)
		}
		// In pieces, with padding, other frames in between, and trailers at the end.
		p.call(101, false)
		p.WritePriority(101, http2.PriorityParam{StreamDep: 99})
		p.WriteRawFrame(0xfe, 0, 0, []byte("what nobody knows"))
		p.WriteDataPadded(101, false, msg("abc")[:3], make([]byte, 7))
		p.says("WINDOW_UPDATE 101 8")
		p.WriteData(101, false, msg("abc")[3:])
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: 101, EndHeaders: true, EndStream: true})
		p.answers(101, "abc")
		p.call(103, false, "content-type", "application/grpc+proto", "grpc-encoding", "identity",
			"content-length", "8")
		p.WriteData(103, false, msg("abc"))
		p.WriteData(103, true, nil)
		p.answers(103, "abc")
		// Headers in two frames.
		block := bytes.Clone(p.fields("x", strings.Repeat("y", 99)))
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: 105, BlockFragment: block[:9]})
		p.WriteContinuation(105, true, block[9:])
		p.WriteData(105, true, msg(""))
		p.answers(105, "")
		p.WritePing(false, [8]byte([]byte("whatever")))
		p.says(`PING true "whatever"`)
	})
}

// Calls that arrive in one read are answered in one write.
func TestOneWrite(t *testing.T) {
	bubble(t, false, func(t *testing.T, p *peer) {
		p.together(func() {
			for id := uint32(1); id < 40; id += 2 {
				p.call(id, false)
				p.WriteData(id, true, msg("abc"))
			}
		})
		b := make([]byte, 1<<16)
		n, err := p.Read(b)
		if m := bytes.Count(b[:n], msg("abc")); err != nil || m != 20 {
			t.Errorf("%d answers in the first read, %v", m, err)
		}
	})
}

func TestFaults(t *testing.T) {
	const head = "HEADERS 1 :status 200 content-type application/grpc grpc-accept-encoding identity " +
		"grpc-status "
	with := func(changes ...string) func(*peer) { return func(p *peer) { p.call(1, false, changes...) } }
	data := func(b []byte) func(*peer) {
		return func(p *peer) {
			p.call(1, false)
			p.WriteData(1, false, b)
		}
	}
	for name, c := range map[string]struct {
		send func(p *peer)
		want string // and end, RST 1 NO_ERROR, because the peer has more to send
	}{
		"method":  {with(":path", "/x.Y/None"), head + "12 grpc-message there is no method /x.Y/None"},
		"get":     {with(":method", "GET"), "HEADERS 1 :status 405"},
		"type":    {with("content-type", "application/json"), "HEADERS 1 :status 415"},
		"web":     {with("content-type", "application/grpc-web"), "HEADERS 1 :status 415"},
		"no type": {with("content-type", ""), "HEADERS 1 :status 415"},
		"gzip":    {with("grpc-encoding", "gzip"), head + "12 grpc-message messages must not be compressed"},
		"timeout": {with("grpc-timeout", "9x"), head + `13 grpc-message grpc-timeout "9x" is no time`},
		"headers": {with("x", strings.Repeat("x", 1<<14)),
			head + "8 grpc-message the headers are larger than 16 KiB"},
		"pressed": {data([]byte{1, 0, 0, 0, 1}),
			head + "13 grpc-message the message is compressed, and grpc-encoding is not said"},
		"large": {data([]byte{0, 0, 16, 0, 1}),
			head + "8 grpc-message grpc: received message larger than max (1048577 vs. 1048576)"},
		"two": {data(append(msg("a"), msg("b")...)),
			head + "13 grpc-message the call has more than one message"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *peer) {
				c.send(p)
				p.says(c.want+" end", "RST 1 NO_ERROR")
				p.WriteData(1, false, make([]byte, 1<<14)) // was in progress
				p.WriteData(1, true, nil)
				p.echo(3)
			})
		})
	}
	inBubble(t, func(t *testing.T, p *peer) {
		p.call(1, true)
		p.fails(1, codes.Internal, "the message is cut short")
		p.call(3, false)
		p.WriteData(3, true, msg("abc")[:7])
		p.fails(3, codes.Internal, "the message is cut short")
		p.call(5, false, ":path", "/x.Y/Fail")
		p.WriteData(5, true, msg("ä\n%"+strings.Repeat("x", 2000)))
		p.fails(5, codes.NotFound, "%C3%A4%0A%25"+strings.Repeat("x", 1024-4))
		p.call(7, false, ":path", "/x.Y/Zeros")
		p.WriteData(7, true, msg(string(binary.BigEndian.AppendUint32(nil, 1<<20+1))))
		p.fails(7, codes.ResourceExhausted, "the answer has 1048577 bytes, more than 1048576")
		p.together(func() {
			p.call(9, false, "grpc-timeout", "0m")
			p.WriteData(9, true, msg("abc"))
		})
		p.fails(9, codes.DeadlineExceeded, "context deadline exceeded")
	})
}

func TestTimeouts(t *testing.T) {
	for text, want := range map[string]time.Duration{"20m": 20 * time.Millisecond, "1H": time.Hour,
		"3M": 3 * time.Minute, "0S": 0, "7u": 7 * time.Microsecond, "99999999n": 99_999_999,
		"99999999H": 2562047 * time.Hour} {
		if got, ok := parseTimeout(text); !ok || got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	for _, text := range []string{"m", "5", "-1m", "1 m", "5x", "123456789m", "m5", "+5m"} {
		if got, ok := parseTimeout(text); ok {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// A call that waits delays no other call, and learns of its deadline and of its end.
func TestCallsThatWait(t *testing.T) {
	bubble(t, true, func(t *testing.T, p *peer) {
		began := time.Now()
		p.call(1, false, ":path", "/x.Y/Wait", "grpc-timeout", "3S")
		p.WriteData(1, true, msg(""))
		p.call(3, false, ":path", "/x.Y/Wait")
		p.WriteData(3, true, msg(""))
		p.echo(5)
		p.after(began, 0)
		p.fails(1, codes.DeadlineExceeded, "context deadline exceeded")
		p.after(began, 3*time.Second)
		time.Sleep(time.Minute) // any time, without a deadline
		p.WriteRSTStream(3, http2.ErrCodeCancel)
		p.echo(7)
		// Data for a complete call ends it.
		p.call(9, false, ":path", "/x.Y/Wait")
		p.WriteData(9, true, msg(""))
		p.WriteData(9, true, msg(""))
		p.says("RST 9 STREAM_CLOSED")
		// When the connection ends, its calls end without an answer.
		p.call(11, false, ":path", "/x.Y/Wait")
		p.WriteData(11, true, msg(""))
		p.WriteContinuation(11, true, nil)
		p.says("GOAWAY 11 PROTOCOL_ERROR", "end")
	})
}

// Of calls that arrive in one read, one that waits delays neither the answers before it nor the calls
// after it.
func TestACallThatWaitsDelaysNone(t *testing.T) {
	bubble(t, true, func(t *testing.T, p *peer) {
		began := time.Now()
		for id := uint32(1); id < 61; id += 6 {
			p.together(func() {
				for i, path := range []string{"/x.Y/Echo", "/x.Y/Wait", "/x.Y/Echo"} {
					p.call(id+2*uint32(i), false, ":path", path)
					p.WriteData(id+2*uint32(i), true, msg("abc"))
				}
			})
			p.answersOf("abc", id, id+4)
		}
		p.after(began, 0)
	})
}

// A few workers are kept.
func TestWorkersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		hold := make(chan struct{})
		s := &server{Config: Config{Delay: true}, soft: t.Context(), hard: t.Context()}
		c := newConn(s, there)
		c.ctx = t.Context()
		go io.Copy(io.Discard, here)
		wait := func(_ context.Context, _, answer []byte) ([]byte, error) {
			<-hold
			return answer, nil
		}
		for round := range 3 {
			c.mu.Lock()
			for i := range uint32(100) {
				s := &stream{id: uint32(round)*1000 + i, method: wait, msg: msg(""), ended: true,
					sendable: 100}
				c.streams[s.id], c.open = s, c.open+1
				c.launch(s)
			}
			c.wake()
			c.mu.Unlock()
			synctest.Wait()
			close(hold)
			synctest.Wait()
			hold = make(chan struct{})
			c.mu.Lock()
			if c.idle != keptWorkers || c.open != 0 {
				t.Errorf("%d workers wait, %d calls are open", c.idle, c.open)
			}
			c.mu.Unlock()
		}
		c.mu.Lock()
		c.stop()
		c.mu.Unlock()
		c.all.Wait()
		here.Close()
		there.Close()
	})
}

// grpc-go makes many calls at once, in place and on workers, over TCP.
func TestClientOfGRPC(t *testing.T) {
	for _, waits := range []bool{false, true} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		echo := map[string]Method{healthpb.Health_Check_FullMethodName: methods()["/x.Y/Echo"]}
		go func() { ended <- Serve(ctx, lis, Config{Delay: waits, Methods: echo}) }()
		conn, err := grpc.NewClient(lis.Addr().String(),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				q := &healthpb.HealthCheckRequest{Service: strings.Repeat("x", n*n*25)} // to 60 kB
				for range 20 {
					a := &healthpb.HealthCheckRequest{}
					err := conn.Invoke(t.Context(), healthpb.Health_Check_FullMethodName, q, a)
					if err != nil || !proto.Equal(q, a) {
						t.Errorf("%d: %v", n, err)
						return
					}
				}
			})
		}
		all.Wait()
		_, err = healthpb.NewHealthClient(conn).List(t.Context(), &healthpb.HealthListRequest{})
		if status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		conn.Close()
	}
}

// A faulty listener fails a given number of times, and then permanently.
type faulty struct {
	net.Listener
	times int
}

type tooMany struct{ error }

func (tooMany) Temporary() bool { return true }

func (l *faulty) Accept() (net.Conn, error) {
	if l.times--; l.times >= 0 {
		return nil, tooMany{errors.New("too many open files")}
	}
	return nil, io.ErrUnexpectedEOF
}

func (*faulty) Close() error { return nil }

func TestAcceptGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Serve(t.Context(), &faulty{times: 4}, Config{})
		if !errors.Is(err, io.ErrUnexpectedEOF) || time.Since(began) != 75*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// BenchmarkCall measures a call over TCP.
func BenchmarkCall(b *testing.B) {
	for _, waits := range []bool{false, true} {
		b.Run(fmt.Sprintf("waits=%v", waits), func(b *testing.B) {
			b.ReportAllocs()
			call, read := prepared(b, waits)
			for b.Loop() {
				call()
				read()
			}
		})
	}
}

// prepared returns functions that send a call as bytes and read its answer.
func prepared(b testing.TB, waits bool) (call, read func()) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, lis, Config{Methods: methods(), Delay: waits}) }()
	c, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	p := &peer{TB: b}
	p.over(c)
	p.begin()
	p.WriteWindowUpdate(0, 1<<30)
	b.Cleanup(func() {
		p.Close()
		stop()
		<-ended
	})
	wire, at := p.Conn, bytes.Buffer{}
	p.Framer = http2.NewFramer(&at, wire)
	p.call(1, false)
	second := at.Len()
	p.call(3, false) // all its fields are in the table
	first, id := bytes.Clone(at.Bytes()[:second]), uint32(1)
	frames := bytes.Clone(at.Bytes()[second:])
	data := len(frames)
	at.Reset()
	p.WriteData(3, true, msg("abc"))
	frames = append(frames, at.Bytes()...)
	answer := make([]byte, 1<<10)
	call = func() {
		binary.BigEndian.PutUint32(frames[5:], id)
		binary.BigEndian.PutUint32(frames[data+5:], id)
		if id == 1 {
			wire.Write(first)
			wire.Write(frames[data:])
		} else {
			wire.Write(frames)
		}
		id += 2
	}
	read = func() {
		for {
			if _, err := io.ReadFull(wire, answer[:9]); err != nil {
				b.Fatal(err)
			}
			n := int(answer[0])<<16 | int(answer[1])<<8 | int(answer[2])
			frame := http2.FrameType(answer[3])
			end := frame == http2.FrameHeaders && http2.Flags(answer[4]).Has(http2.FlagHeadersEndStream)
			if _, err := io.ReadFull(wire, answer[:n]); err != nil {
				b.Fatal(err)
			}
			if end {
				return
			}
		}
	}
	return call, read
}

// A call costs few allocations, nearly all for parsing its headers.
func TestAllocations(t *testing.T) {
	for waits, most := range map[bool]float64{false: 12, true: 14} {
		call, read := prepared(t, waits)
		call()
		read()
		if n := testing.AllocsPerRun(1000, func() { call(); read() }); n > most {
			t.Errorf("%v allocations a call, budget %v; waits: %v", n, most, waits)
		}
	}
}
