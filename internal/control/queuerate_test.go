package control

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
)

// rateOf returns the rate of a queue at a process, between 5 and 500.
func rateOf(s store.Store, start int64) *QueueRate {
	q := NewQueueRate(&node.Node{Records: s}, "orders", slog.New(slog.DiscardHandler))
	q.SetBounds(&config.Queue{Name: "orders", Rate: start,
		Auto: config.Auto{Mode: limit.AutoOn, Min: 5, Max: 500}})
	return q
}

// find lets a target refuse all, until a rate is found.
func (q *QueueRate) find(t *testing.T, below float64) {
	t.Helper()
	for range 30 {
		for range 200 {
			q.Meter.Note("POST", "", 0, signals.Refused, 20*time.Millisecond)
		}
		time.Sleep(signals.Every)
		if q.Seek(t.Context(), true); q.Rate() < below {
			return
		}
	}
	t.Fatalf("the rate is %v, although all is refused", q.Rate())
}

// A process that begins to deliver goes on with the rate of the record, also when it has delivered before. It
// delivers at min while it cannot read it.
func TestTheNextHostDeliversAtTheRateOfTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &store.Memory{}
		one := rateOf(records, 300)
		if one.Rate() != 5 {
			t.Errorf("it delivers %v a second before it has read the record", one.Rate())
		}
		if one.Host(t.Context()); one.Rate() != 300 {
			t.Errorf("%v a second, although nothing was found", one.Rate())
		}
		one.Seek(t.Context(), true)
		st := &shaky{Store: records}
		two := rateOf(st, 300)
		two.Host(t.Context())
		two.find(t, 50)
		found := two.Rate()
		// The first one has not heard of it, and delivers again.
		if one.Host(t.Context()); one.Rate() != found {
			t.Errorf("%v a second after a takeover, %v were found", one.Rate(), found)
		}
		time.Sleep(signals.Every)
		if one.Seek(t.Context(), true); one.Rate() != found {
			t.Errorf("%v a second a while after a takeover, %v were found", one.Rate(), found)
		}
		one.find(t, found-1)

		st.until = time.Now().Add(time.Minute)
		if two.Host(t.Context()); two.Rate() != 5 {
			t.Errorf("%v a second, and the record cannot be read", two.Rate())
		}
		if two.Seek(t.Context(), true); two.Rate() != 5 {
			t.Errorf("%v a second, and the record cannot be read yet", two.Rate())
		}
		time.Sleep(time.Minute)
		if two.Seek(t.Context(), true); two.Rate() != one.Rate() || two.shown.Load() == nil {
			t.Errorf("%v a second, and the record can be read again: %v", two.Rate(), one.Rate())
		}
	})
}

// A record of a rate that nobody can read does not keep the rate from being found.
func TestAnUnreadableRateIsFoundAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &store.Memory{}
		if _, err := records.CompareAndSwap(t.Context(), rateKey+"orders", 0, []byte("{")); err != nil {
			t.Fatal(err)
		}
		q := rateOf(records, 20)
		if q.Host(t.Context()); q.Rate() != 20 {
			t.Errorf("it begins at %v a second, want 20", q.Rate())
		}
		q.find(t, 10)
		again := rateOf(records, 20)
		if again.Host(t.Context()); again.Rate() != q.Rate() {
			t.Errorf("%v a second were found, and %v were written", q.Rate(), again.Rate())
		}
	})
}

// While an operator's rate is in force, what is refused says nothing about the rate that was found.
func TestTheRateStaysWhileAnOperatorsIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := rateOf(&store.Memory{}, 30)
		q.Host(t.Context())
		q.find(t, 25)
		found := q.Rate()
		for range 24 {
			for range 200 {
				q.Meter.Note("POST", "", 0, signals.Refused, 20*time.Millisecond)
			}
			time.Sleep(signals.Every)
			q.Seek(t.Context(), false)
		}
		if q.Rate() != found {
			t.Errorf("the rate is %v, and was %v", q.Rate(), found)
		}
		q.Seek(t.Context(), true) // what was measured before does not count
		time.Sleep(signals.Every)
		if q.Seek(t.Context(), true); q.Rate() != found {
			t.Errorf("the rate goes on with %v, and was %v", q.Rate(), found)
		}
	})
}
