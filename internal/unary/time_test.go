package unary

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
)

// Incomplete frames or calls do not hold a connection or a call.
func TestHalves(t *testing.T) {
	for name, c := range map[string]string{"nothing": "", "hello": http2.ClientPreface[:9],
		"no settings":   http2.ClientPreface,
		"half settings": http2.ClientPreface + "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, false, func(t *testing.T, p *peer) {
				p.Close()
				p.dial()
				began := time.Now()
				io.WriteString(p.Conn, c)
				p.next()
				p.says("WINDOW_UPDATE 0 4128769", "GOAWAY 0 NO_ERROR", "end")
				p.after(began, 10*time.Second)
			})
		})
	}
	inBubble(t, func(t *testing.T, p *peer) { // a byte per second
		began := time.Now()
		p.call(1, true, "x", "y")
		p.fails(1, codes.Internal, "the message is cut short")
		var all sync.WaitGroup
		all.Go(func() {
			for _, b := range []byte("\x00\x00\x40\x00\x00\x00\x00\x00\x01abcdefghijklmnop") {
				p.Write([]byte{b})
				time.Sleep(time.Second)
			}
		})
		p.says("GOAWAY 1 NO_ERROR", "end")
		p.after(began, 10*time.Second)
		all.Wait()
	})
	inBubble(t, func(t *testing.T, p *peer) {
		began := time.Now()
		p.call(1, false)
		time.Sleep(time.Second)
		p.call(3, false, "grpc-timeout", "20m")
		p.fails(3, codes.DeadlineExceeded, "the call did not come whole in time")
		p.says("RST 3 NO_ERROR")
		p.after(began, time.Second+20*time.Millisecond)
		p.WriteData(1, false, msg("abc")[:4])
		p.fails(1, codes.DeadlineExceeded, "the call did not come whole in time")
		p.says("RST 1 NO_ERROR")
		p.after(began, 10*time.Second)
		p.echo(5)
	})
}

// An idle peer is pinged, and stays connected while it answers.
func TestIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		const ping = `PING false "\x00\x00\x00\x00\x00\x00\x00\x00"`
		p.echo(1)
		began := time.Now()
		p.says(ping)
		p.after(began, 2*time.Minute)
		time.Sleep(19 * time.Second)
		p.WritePing(true, [8]byte{})
		p.says(ping)
		p.after(began, 4*time.Minute+19*time.Second)
		p.says("GOAWAY 1 NO_ERROR", "end")
		p.after(began, 4*time.Minute+39*time.Second)
	})
}

// A peer that does not read is disconnected.
func TestNobodyReads(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		p.WriteWindowUpdate(0, 1<<30)
		began := time.Now()
		for id := uint32(1); ; id += 2 {
			p.call(id, false)
			if p.WriteData(id, true, msg("abc")) != nil {
				break
			}
			if id%100 == 1 {
				synctest.Wait() // fewer than 1,000 are in progress
			}
		}
		p.after(began, 10*time.Second)
	})
}

// Calls that were sent before the peer knew of the end are answered, later ones are not.
func TestLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer) {
		p.call(1, false)
		synctest.Wait()
		p.stop()
		p.says("GOAWAY 2147483647 NO_ERROR", `PING false "farewell"`)
		p.echo(3)
		p.WriteData(1, false, msg("abc"))
		p.WritePing(true, [8]byte([]byte("farewell")))
		p.says("GOAWAY 3 NO_ERROR")
		p.call(5, false)
		p.WriteData(5, true, msg("abc"))
		p.WriteData(1, true, nil)
		p.answers(1, "abc")
		p.says("end")
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
		p.ended <- nil
	})
	bubble(t, true, func(t *testing.T, p *peer) { // a worker has the last call
		began := time.Now()
		p.call(1, false, ":path", "/x.Y/Slow")
		p.WriteData(1, true, msg(""))
		synctest.Wait()
		p.stop()
		p.says("GOAWAY 2147483647 NO_ERROR", `PING false "farewell"`)
		p.WritePing(true, [8]byte([]byte("farewell")))
		p.says("GOAWAY 1 NO_ERROR")
		p.answers(1, "")
		p.says("end")
		p.after(began, 3*time.Second)
	})
	inBubble(t, func(t *testing.T, p *peer) { // a silent peer
		began := time.Now()
		p.stop()
		p.says("GOAWAY 2147483647 NO_ERROR", `PING false "farewell"`, "end")
		p.after(began, 5*time.Second)
	})
}
