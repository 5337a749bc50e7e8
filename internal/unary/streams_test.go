package unary

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// handlers returns the streams of a test server. running counts the handlers.
func handlers(running *atomic.Int64) map[string]Handler {
	each := func(answer func(s *Stream, msg []byte) error) Handler {
		return func(ctx context.Context, s *Stream) error {
			running.Add(1)
			defer running.Add(-1)
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-s.Ready():
				}
				for {
					msg, err := s.Next()
					if errors.Is(err, io.EOF) {
						return nil
					} else if msg == nil {
						break
					}
					if err := answer(s, msg); err != nil {
						return err
					}
				}
			}
		}
	}
	return map[string]Handler{
		"/x.Y/Echoes": each(func(s *Stream, msg []byte) error { return s.Send(msg) }),
		"/x.Y/Sink":   each(func(*Stream, []byte) error { return nil }),
		"/x.Y/Idle": func(ctx context.Context, _ *Stream) error {
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			return ctx.Err()
		},
	}
}

// Over a real socket, hostile frames end a stream or the connection, other streams go on, and every
// goroutine ends.
func TestHostileStreams(t *testing.T) { //nolint:funlen // a list of cases
	const head = "HEADERS 1 :status 200 content-type application/grpc"
	const internal = head + " grpc-accept-encoding identity grpc-status 13 grpc-message "
	const cutShort = "the message is cut short"
	echoes := func(more func(p *peer)) func(*peer) {
		return func(p *peer) {
			p.call(1, false, ":path", "/x.Y/Echoes")
			more(p)
		}
	}
	data := func(end bool, b string) func(*peer) {
		return echoes(func(p *peer) { p.WriteData(1, end, []byte(b)) })
	}
	for name, c := range map[string]struct {
		send func(p *peer)
		want []string // the last frame may be GOAWAY, and then the connection ends
	}{
		"data before headers": {func(p *peer) { p.WriteData(1, false, msg("abc")) }, []string{"GOAWAY 0 PROTOCOL_ERROR"}},
		"data after the end": {func(p *peer) {
			p.call(1, true, ":path", "/x.Y/Idle")
			p.WriteData(1, true, msg("abc"))
		}, []string{"RST 1 STREAM_CLOSED"}},
		"headers again": {echoes(func(p *peer) { p.call(1, false) }), []string{"RST 1 PROTOCOL_ERROR"}},
		"compressed":    {data(false, "\x01\x00\x00\x00\x01a"), []string{internal + "the message is compressed, and grpc-encoding is not said end", "RST 1 NO_ERROR"}},
		"huge": {data(false, "\x00\x7f\xff\xff\xff"), []string{head + " grpc-accept-encoding identity grpc-status 8 " +
			"grpc-message grpc: received message larger than max (2147483647 vs. 1048576) end", "RST 1 NO_ERROR"}},
		"negative": {data(false, "\x00\xff\xff\xff\xff"), []string{head + " grpc-accept-encoding identity grpc-status 8 " +
			"grpc-message grpc: received message larger than max (4294967295 vs. 1048576) end", "RST 1 NO_ERROR"}},
		"cut":        {data(true, "\x00\x00\x00\x00\x03ab"), []string{internal + cutShort + " end"}},
		"cut prefix": {data(true, "\x00\x00"), []string{internal + cutShort + " end"}},
		"bytes": {echoes(func(p *peer) {
			for _, b := range msg("abc") {
				p.WriteData(1, false, []byte{b})
			}
			p.WriteData(1, true, nil)
		}), []string{head, fmt.Sprintf("DATA 1 %q", msg("abc")), "HEADERS 1 grpc-status 0 end"}},
		"window of a stream":     {echoes(func(p *peer) { p.WriteWindowUpdate(1, 1<<31-1) }), []string{"RST 1 FLOW_CONTROL_ERROR"}},
		"window of a connection": {echoes(func(p *peer) { p.WriteWindowUpdate(0, 1<<31-1) }), []string{"GOAWAY 1 FLOW_CONTROL_ERROR"}},
		"window": {func(p *peer) {
			p.call(1, false, ":path", "/x.Y/Idle")
			for range maxReceive/frameSize + 1 {
				p.WriteData(1, false, make([]byte, frameSize))
			}
		}, []string{"GOAWAY 1 FLOW_CONTROL_ERROR"}},
		"many": {func(p *peer) {
			for i := range uint32(maxStreams) {
				p.call(2*i+1, false, ":path", "/x.Y/Idle")
			}
			p.call(2049, false, ":path", "/x.Y/Idle")
		}, []string{"RST 2049 REFUSED_STREAM"}},
		"resets": {floods(func(p *peer, id uint32) { p.WriteRSTStream(id, http2.ErrCodeCancel) }), []string{"GOAWAY x ENHANCE_YOUR_CALM too_many_pings"}},
		"bytes, forever": {echoes(func(p *peer) {
			p.WriteData(1, false, binary.BigEndian.AppendUint32([]byte{0}, maxMessage))
			for p.WriteData(1, false, []byte{0}) == nil {
			}
		}), []string{"GOAWAY x ENHANCE_YOUR_CALM too_many_pings"}},
		"messages between resets": {floods(func(p *peer, id uint32) {
			if id%200 == 1 {
				p.WriteData(1, false, make([]byte, 250*prefix))
			}
			p.WriteRSTStream(id, http2.ErrCodeCancel)
		}), []string{"GOAWAY x ENHANCE_YOUR_CALM too_many_pings"}},
	} {
		t.Run(name, func(t *testing.T) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var running atomic.Int64
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- Serve(ctx, lis, Config{Methods: methods(), Streams: handlers(&running)}) }()
			nc, err := net.Dial("tcp", lis.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			p := &peer{TB: t}
			p.over(nc)
			p.begin()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.send(p)
			}()
			for _, w := range c.want {
				got := p.next()
				for strings.HasPrefix(got, "WINDOW_UPDATE") {
					got = p.next()
				}
				if before, after, ok := strings.Cut(w, " x "); ok { // frames of other streams may come before
					for n := 0; n < 50_000 && got != "end" && !strings.HasPrefix(got, before); n++ {
						got = p.next()
					}
					// What the client still sends may make the operating system discard the reason.
					if strings.HasSuffix(got, after) || got == "end" || strings.Contains(got, "reset by peer") {
						continue
					}
				}
				if got != w {
					t.Fatalf("got  %.300s\nwant %.300s", got, w)
				}
			}
			if !strings.HasPrefix(c.want[len(c.want)-1], "GOAWAY") && name != "many" {
				<-done
				p.echo(5)
			}
			nc.Close()
			<-done
			stop() // Serve waits for every goroutine
			if err := <-ended; err != nil || running.Load() != 0 {
				t.Errorf("%v, %d handlers run", err, running.Load())
			}
		})
	}
}

// A client grants every window and reads nothing: what waits for it is bounded, and the connection
// ends.
func TestWhatIsNotReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const endless = 1 << 30
		here, there := net.Pipe()
		defer here.Close()
		s := newServer(Config{})
		s.soft, s.hard = t.Context(), t.Context()
		c := newConn(s, there)
		c.ctx, c.sendable = t.Context(), endless
		var sent atomic.Int64
		var all sync.WaitGroup
		for i := range uint32(10) {
			call := &stream{id: 2*i + 1, is: streaming, sendable: endless}
			all.Go(func() {
				stream := &Stream{conn: c, call: call}
				for range 20 {
					if stream.Send(make([]byte, maxMessage)) != nil {
						return
					}
					sent.Add(maxMessage)
				}
			})
		}
		all.Wait()
		if n := sent.Load(); !c.dead || n > 3*maxUnsent {
			t.Errorf("%d bytes were kept for a client that reads nothing; the connection has ended: %v", n, c.dead)
		}
	})
}

// floods opens a stream, and then sends a frame with each of many more.
func floods(send func(p *peer, id uint32)) func(*peer) {
	return func(p *peer) {
		p.call(1, false, ":path", "/x.Y/Sink")
		for id := uint32(3); id < 20_000; id += 2 {
			if p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true,
				BlockFragment: slices.Clone(p.fields(":path", "/x.Y/Sink"))}) != nil {
				return
			}
			send(p, id)
		}
	}
}
