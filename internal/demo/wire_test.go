package demo

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"

	"github.com/headgate/headgate/internal/loopback"
)

// echo answers on loopback with what it is sent, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.Copy(c, c)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

// dialWire opens a wire to an echo, and a connection through it.
func dialWire(t *testing.T, delay time.Duration) (*wire, net.Conn) {
	t.Helper()
	w, err := openWire([2]string{"del", "sjc"}, echo(t), delay)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", w.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w, c
}

// TestWire: all that is sent arrives, in order, and each way takes the delay.
func TestWire(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	stick := yardstick.Start(t)
	w, c := dialWire(t, delay)
	sent := make([]byte, 3*wireChunk) // several chunks, all under way at once
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(sent)
	began := time.Now()
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back took %v, want %v at least", took, 2*delay)
	} else { // each way, the chunks come one after another
		stick.Judge(t, "there and back", took, yardstick.Bound{Design: 2 * delay, Delays: 20})
	}
	if !bytes.Equal(got, sent) {
		t.Error("what came is not what was sent")
	}
	if !w.joins("del") || !w.joins("sjc") || w.joins("lhr") || w.other("sjc") != "del" {
		t.Error("it does not know its ends")
	}
}

// TestWireThatIsCut: nothing arrives and nobody is told, and it arrives when the wire is
// mended.
func TestWireThatIsCut(t *testing.T) {
	t.Parallel()
	w, c := dialWire(t, time.Millisecond)
	w.setCut(true)
	w.setCut(true)
	if _, err := c.Write([]byte("quack")); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	got := make([]byte, 5)
	if n, err := c.Read(got); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v: want silence", n, err)
	}
	w.setCut(false)
	w.setCut(false)
	c.SetReadDeadline(time.Time{})
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "quack" {
		t.Errorf("%q, %v: want what was under way", got, err)
	}
}

// TestWireThatIsTakenDown ends what is under way, cut or not.
func TestWireThatIsTakenDown(t *testing.T) {
	t.Parallel()
	w, c := dialWire(t, time.Hour)
	w.setCut(true)
	for range 2 * wireChunks { // more than is under way at once: the wire waits
		if _, err := c.Write(make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
	if _, err := w.ln.Accept(); !errors.Is(err, net.ErrClosed) { // a dial could meet who has the port now
		t.Errorf("%v: the wire still listens", err)
	}
}

// TestWireToNobody hangs up on who dials.
func TestWireToNobody(t *testing.T) {
	t.Parallel()
	w, err := openWire([2]string{"del", "sjc"}, loopback.Free(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	c, err := net.Dial("tcp", w.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want an end", err)
	}
}
