package unary

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// methods returns the methods of a test server.
func methods() map[string]Method {
	return map[string]Method{
		"/x.Y/Echo": func(_ context.Context, req, answer []byte) ([]byte, error) {
			return append(answer, req...), nil
		},
		"/x.Y/Fail": func(_ context.Context, req, _ []byte) ([]byte, error) {
			return nil, status.Error(codes.NotFound, string(req))
		},
		"/x.Y/Wait": func(ctx context.Context, _, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"/x.Y/Slow": func(_ context.Context, _, answer []byte) ([]byte, error) {
			<-time.After(3 * time.Second)
			return answer, nil
		},
		"/x.Y/Zeros": func(_ context.Context, req, answer []byte) ([]byte, error) {
			return append(answer, make([]byte, binary.BigEndian.Uint32(req))...), nil
		},
	}
}

// A peer is a client that can send anything.
type peer struct {
	testing.TB
	net.Conn
	*http2.Framer
	lis   *bufconn.Listener
	stop  context.CancelFunc
	ended chan error
	block bytes.Buffer
	enc   *hpack.Encoder
}

// inBubble runs a test in a bubble with a server and an open connection, once in place and once on
// workers.
func inBubble(t *testing.T, test func(t *testing.T, p *peer)) {
	t.Helper()
	for name, waits := range map[string]bool{"in place": false, "workers": true} {
		t.Run(name, func(t *testing.T) { bubble(t, waits, test) })
	}
}

func bubble(t *testing.T, waits bool, test func(t *testing.T, p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		p := &peer{TB: t, lis: bufconn.Listen(1 << 20), stop: stop, ended: make(chan error, 1)}
		go func() { p.ended <- Serve(ctx, p.lis, Config{Methods: methods(), Delay: waits}) }()
		defer func() {
			p.Close()
			stop()
			if err := <-p.ended; err != nil {
				t.Errorf("served until %v", err)
			}
		}()
		p.dial()
		p.begin()
		test(t, p)
	})
}

// dial opens a connection and sends nothing.
func (p *peer) dial() {
	p.Helper()
	c, err := p.lis.Dial()
	if err != nil {
		p.Fatal(err)
	}
	p.over(c)
}

// over sets the connection of the peer.
func (p *peer) over(c net.Conn) {
	p.Conn, p.Framer = c, http2.NewFramer(c, c)
	p.AllowIllegalWrites = true
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.block)
}

// together sends everything that send writes in one write.
func (p *peer) together(send func()) {
	var all bytes.Buffer
	before := p.Framer
	p.Framer = http2.NewFramer(&all, nil)
	send()
	p.Framer = before
	p.Write(all.Bytes())
}

// begin performs the handshake.
func (p *peer) begin() {
	p.Helper()
	io.WriteString(p.Conn, http2.ClientPreface)
	p.WriteSettings()
	p.says("SETTINGS MAX_CONCURRENT_STREAMS 1024 MAX_HEADER_LIST_SIZE 16384 INITIAL_WINDOW_SIZE 1048581",
		"WINDOW_UPDATE 0 4128769", "SETTINGS ack")
}

// call sends the headers of a call of Echo. changes are pairs that replace fields; "" removes one.
func (p *peer) call(id uint32, end bool, changes ...string) {
	p.Helper()
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.fields(changes...),
		EndHeaders: true, EndStream: end})
}

func (p *peer) fields(changes ...string) []byte {
	all := []string{":method", "POST", ":scheme", "http", ":path", "/x.Y/Echo",
		"content-type", "application/grpc", "te", "trailers"}
	for change := range slices.Chunk(changes, 2) {
		if at := slices.Index(all, change[0]); at < 0 {
			all = append(all, change...)
		} else {
			all[at+1] = change[1]
		}
	}
	p.block.Reset()
	for f := range slices.Chunk(all, 2) {
		if f[1] != "" {
			p.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
	}
	return p.block.Bytes()
}

// msg returns a message in its wire format.
func msg(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// echo makes a call and checks its answer.
func (p *peer) echo(id uint32) {
	p.Helper()
	p.call(id, false)
	p.WriteData(id, true, msg("abc"))
	p.answers(id, "abc")
}

func (p *peer) answers(id uint32, text string) {
	p.Helper()
	p.says(answer(id, text)...)
}

// answersOf checks the answers of calls that workers have at the same time: in any order.
func (p *peer) answersOf(text string, ids ...uint32) {
	p.Helper()
	want := map[string][]string{}
	for _, id := range ids {
		want[fmt.Sprint(id)] = answer(id, text)
	}
	for range 3 * len(ids) {
		got := p.next()
		id := strings.Fields(got + " no frame")[1]
		if left := want[id]; len(left) == 0 || left[0] != got {
			p.Fatalf("got  %.300s\nwant %q", got, left)
		}
		want[id] = want[id][1:]
	}
}

// answer returns the frames of an answer.
func answer(id uint32, text string) []string {
	return []string{fmt.Sprintf("HEADERS %d :status 200 content-type application/grpc", id),
		fmt.Sprintf("DATA %d %q", id, msg(text)), fmt.Sprintf("HEADERS %d grpc-status 0 end", id)}
}

// says checks the next frames.
func (p *peer) says(want ...string) {
	p.Helper()
	for _, w := range want {
		if got := p.next(); got != w {
			p.Fatalf("got  %.300s\nwant %.300s", got, w)
		}
	}
}

// next reads a frame and formats it.
func (p *peer) next() string {
	frame, err := p.ReadFrame()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
			return "end"
		}
		return err.Error()
	}
	h := frame.Header()
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		text := "SETTINGS"
		if f.IsAck() {
			return "SETTINGS ack"
		}
		f.ForeachSetting(func(s http2.Setting) error {
			text += fmt.Sprintf(" %v %d", s.ID, s.Val)
			return nil
		})
		return text
	case *http2.MetaHeadersFrame:
		var text strings.Builder
		text.WriteString(fmt.Sprintf("HEADERS %d", h.StreamID))
		for _, field := range f.Fields {
			text.WriteString(" " + field.Name + " " + field.Value)
		}
		if f.StreamEnded() {
			text.WriteString(" end")
		}
		return text.String()
	case *http2.DataFrame:
		return fmt.Sprintf("DATA %d %q", h.StreamID, f.Data())
	case *http2.RSTStreamFrame:
		return fmt.Sprintf("RST %d %v", h.StreamID, f.ErrCode)
	case *http2.GoAwayFrame:
		return strings.TrimSpace(fmt.Sprintf("GOAWAY %d %v %s", f.LastStreamID, f.ErrCode, f.DebugData()))
	case *http2.PingFrame:
		return fmt.Sprintf("PING %v %q", f.IsAck(), f.Data[:])
	case *http2.WindowUpdateFrame:
		return fmt.Sprintf("WINDOW_UPDATE %d %d", h.StreamID, f.Increment)
	}
	return fmt.Sprint(frame)
}

// fails checks that a call is answered without a message.
func (p *peer) fails(id uint32, code codes.Code, words string) {
	p.Helper()
	p.says(fmt.Sprintf("HEADERS %d :status 200 content-type application/grpc grpc-accept-encoding identity "+
		"grpc-status %d grpc-message %s end", id, code, words))
}

// after checks that something happens at a time after began.
func (p *peer) after(began time.Time, want time.Duration) {
	p.Helper()
	if took := time.Since(began); took != want {
		p.Fatalf("after %v, want %v", took, want)
	}
}
