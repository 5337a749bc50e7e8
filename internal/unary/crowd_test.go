package unary

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
)

// A streets is a listener whose connections come from given addresses.
type streets struct {
	*bufconn.Listener
	from chan string
}

func (s streets) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return street{c, &net.TCPAddr{IP: net.ParseIP(<-s.from), Port: 1}}, nil
}

type street struct {
	net.Conn
	addr net.Addr
}

func (s street) RemoteAddr() net.Addr { return s.addr }

// One client with any number of connections leaves places for others.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := streets{bufconn.Listen(1 << 10), make(chan string, 1)}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		s := newServer(Config{Methods: methods()})
		const most = 20 // instead of 1,000, too many for the race detector
		s.places.mostNetwork = most
		go func() { ended <- s.serve(ctx, lis) }()
		dial := func(from string) *peer {
			lis.from <- from
			p := &peer{TB: t, lis: lis.Listener}
			p.dial()
			return p
		}
		refused := func(from string) {
			t.Helper()
			p := dial(from)
			p.says("SETTINGS", "GOAWAY 0 ENHANCE_YOUR_CALM too many connections", "end")
			p.Close()
		}
		served := func(from string) *peer {
			t.Helper()
			p := dial(from)
			p.begin()
			p.echo(1)
			return p
		}
		var all []*peer
		for i := range most {
			all = append(all, dial(fmt.Sprintf("2001:db8::%x:1", i)))
		}
		refused("2001:db8::ffff:ffff:ffff:ffff") // of the same /64
		last := served("2001:db8:0:1::1")
		all[0].Close()
		synctest.Wait()
		all = append(all, last, served("2001:db8::1"))
		refused("2001:db8::1")
		time.Sleep(patience) // all silent ones are gone
		synctest.Wait()
		for range 10 {
			all = append(all, served("2001:db8::1"))
		}
		for i := len(all); i > 0; i-- {
			all[i-1].Close()
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p := &newServer(Config{}).places
	for range maxNetwork {
		if p.take(&net.TCPAddr{IP: net.ParseIP("2001:db8::1")}) == nil {
			t.Fatal("a network has fewer places than it should have")
		}
	}
	if p.take(&net.TCPAddr{IP: net.ParseIP("2001:db8::2")}) != nil {
		t.Error("there is no end of places for a network")
	}
	for i := range maxConns - maxNetwork {
		if p.take(&net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))}) == nil {
			t.Fatalf("connection %d finds no place", i)
		}
	}
	if p.take(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}) != nil {
		t.Error("there is no end of places")
	}
}

// over returns a peer with a new connection to a server.
func over(t *testing.T, s *server) *peer {
	t.Helper()
	p := &peer{TB: t, lis: bufconn.Listen(1 << 20)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if c, err := p.lis.Accept(); err == nil {
			newConn(s, c).serve()
		}
	}()
	p.dial()
	t.Cleanup(func() {
		p.Close()
		<-ended
	})
	p.begin()
	return p
}

func serverOf(t *testing.T, cfg Config) *server {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	s := newServer(cfg)
	s.soft, s.hard = ctx, ctx
	return s
}

// Many connections that each stay within their bound do not exceed the bound of all connections.
func TestAllThatIsHeldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOf(t, Config{Methods: methods()})
		const others = maxHeld - 200<<10
		s.held.Store(others)
		honest, greedy := over(t, s), over(t, s)
		half := msg(strings.Repeat("x", 500<<10))
		greedy.call(1, false)
		for i := range 17 { // 272 KB, minus the 64 that are free
			if greedy.WriteData(1, false, half[i<<14:(i+1)<<14]) != nil {
				break
			}
		}
		greedy.says("GOAWAY 1 ENHANCE_YOUR_CALM too_many_pings", "end")
		synctest.Wait()
		if n := s.held.Load(); n != others {
			t.Errorf("%d bytes are held, want %d", n, others)
		}
		s.held.Store(maxHeld)
		honest.echo(1)
		if n := s.held.Load(); n != maxHeld {
			t.Errorf("%d bytes more are held by small calls", n-maxHeld)
		}
	})
	synctest.Test(t, func(t *testing.T) { // what was held is freed, also by workers and by timeouts
		s := serverOf(t, Config{Methods: methods(), Delay: true})
		p := over(t, s)
		b := msg(strings.Repeat("x", 200<<10))
		for id := uint32(1); id < 5; id += 2 {
			p.call(id, false, ":path", "/x.Y/Fail")
			for i := range 12 {
				p.WriteData(id, false, b[i<<14:(i+1)<<14])
			}
			synctest.Wait()
			if n := s.held.Load(); n < 100<<10 {
				t.Fatalf("%d bytes are held", n)
			}
			if id == 1 {
				p.WriteData(id, true, b[12<<14:])
				p.next()
			} else {
				p.fails(id, codes.DeadlineExceeded, "the call did not come whole in time")
				p.says("RST 3 NO_ERROR")
			}
			synctest.Wait()
			if n := s.held.Load(); n != 0 {
				t.Errorf("call %d: %d bytes are held when it is over", id, n)
			}
		}
	})
}

// Even if very many calls are in progress, each connection can have a few.
func TestCallsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := serverOf(t, Config{Delay: true, Methods: map[string]Method{
			"/x.Y/Echo": func(_ context.Context, req, answer []byte) ([]byte, error) {
				<-release
				return append(answer, req...), nil
			}}})
		s.busy.Store(maxBusy)
		greedy, honest := over(t, s), over(t, s)
		for id := uint32(1); id <= 2*freeBusy+1; id += 2 {
			greedy.call(id, false)
			greedy.WriteData(id, true, msg("abc"))
		}
		greedy.fails(2*freeBusy+1, codes.ResourceExhausted, "too many calls are under way")
		honest.call(1, false)
		honest.WriteData(1, true, msg("abc"))
		close(release)
		honest.answers(1, "abc")
		go io.Copy(io.Discard, greedy.Conn)
		synctest.Wait()
		if n := s.busy.Load(); n != maxBusy {
			t.Errorf("%d calls are under way that are over", n-maxBusy)
		}
	})
}

// A block of headers that is small on the wire and large when parsed uses no memory, and a header
// table larger than ours is an error.
func TestHeaderBombs(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		fields := p.fields()
		bomb := append([]byte{0x40, 1, 'x', 0x7f, 0xa1, 0x1e}, strings.Repeat("y", 4000)...) // of 4,000 bytes
		bomb = append(bomb, strings.Repeat("\xbe", 10_000)...)                               // 10,000 times
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append(fields, bomb...),
			EndHeaders: true, EndStream: true})
		p.fails(1, codes.ResourceExhausted, "the headers are larger than 16 KiB")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%d bytes for a block of %d", n, len(bomb))
		}
		p.enc.SetMaxDynamicTableSize(0) // it does not know what the bomb has put there
		p.echo(3)
		p.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 5, []byte{0x3f, 0xe2, 0x1f}) // 4,097
		p.says("GOAWAY 3 COMPRESSION_ERROR", "end")
	})
}
