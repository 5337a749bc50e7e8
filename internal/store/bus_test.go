package store

import (
	"context"
	"sync/atomic"
	"testing"
)

// Nothing is answered after stop, however many requests arrive at that moment.
func TestNothingIsAnsweredAfterTheEnd(t *testing.T) { withEngines(t, testNothingIsAnsweredAfterTheEnd) }

func testNothingIsAnsweredAfterTheEnd(t *testing.T, d *disk) {
	b := NewBus(d.engine.Conn())
	for range 200 {
		var ended atomic.Bool
		deaf, err := b.Serve("who", func(context.Context, []byte) []byte {
			if ended.Load() {
				t.Error("answered after the end")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if err := b.conn.PublishRequest(subjectAsk+"who", "_INBOX.nobody", nil); err != nil {
				t.Fatal(err)
			}
		}
		deaf()
		ended.Store(true)
	}
}
