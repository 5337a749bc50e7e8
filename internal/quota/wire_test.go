package quota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// someRequests returns requests of all kinds.
func someRequests(random *rand.Rand) (rs []*request) {
	for range 1 + random.IntN(40) {
		r := &request{kind: kind(1 + random.IntN(int(kindLast)-1)),
			shard: byte(random.IntN(Shards)), limit: fmt.Sprint("limit-", random.IntN(5)),
			key: strings.Repeat("k", random.IntN(mostKey+1))}
		switch r.kind {
		case kindBorrow:
			r.Report = limittable.Report{
				Loan: random.Uint64() >> 1, Used: random.Int64N(99), Back: random.Int64N(99),
				Age: time.Duration(random.Int64N(1e9)), Need: random.Int64N(limit.MaxAmount), Least: 1,
				Want: random.Int64N(9), Close: random.IntN(2) == 0,
			}
		case kindTake, kindPeek:
			r.n = random.Int64() - random.Int64()
		case kindReserve:
			r.n, r.ttl = random.Int64(), time.Duration(random.Int64())
		case kindSettle:
			r.n, r.id = random.Int64(), random.Uint64()
		}
		r.Borrower = 77
		rs = append(rs, r)
	}
	return rs
}

// Messages are parsed as they were written.
func TestMessagesAreReadAsWritten(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 31))
		rs := someRequests(random)
		who, got, err := parseRequests(appendRequests(nil, 77, rs))
		if err != nil || who != 77 || len(got) != len(rs) {
			t.Fatalf("seed %d: %d of %d requests of %d, %v", seed, len(got), len(rs), who, err)
		}
		for i := range got {
			if !reflect.DeepEqual(&got[i], rs[i]) {
				t.Fatalf("seed %d: %+v is read as %+v", seed, rs[i], &got[i])
			}
		}
		replies := make([]reply, 1+random.IntN(30))
		for i := range replies {
			r := &replies[i]
			if r.status = status(random.IntN(int(lastStatus))); r.status <= again {
				r.given, r.Allowed, r.Shared = random.Int64(), random.IntN(2) == 0, random.IntN(2) == 0
				r.Amount, r.Remaining, r.ID = random.Int64(), random.Int64(), random.Uint64()
				r.Retry, r.Reset, r.Wait = -1, time.Duration(random.Int64()), time.Duration(random.Int64())
			}
		}
		told, err := parseReplies(appendReplies(nil, replies))
		if err != nil || !reflect.DeepEqual(told, replies) {
			t.Fatalf("seed %d: %+v is read as %+v, %v", seed, replies, told, err)
		}
		ps := []place{{"a", ""}, {"", "b"}, {"limit", "key"}}
		if got, err := parsePlaces(appendPlaces(nil, ps)); err != nil || !reflect.DeepEqual(got, ps) {
			t.Fatalf("%v is read as %v, %v", ps, got, err)
		}
	}
}

// A message of another format, cut short or too long is rejected.
func TestDamagedMessagesAreRefused(t *testing.T) {
	b := appendRequests(nil, 77, someRequests(rand.New(rand.NewPCG(1, 1))))
	for n := range len(b) {
		if _, _, err := parseRequests(b[:n]); !errors.Is(err, errMessage) {
			t.Fatalf("%d of %d bytes are read: %v", n, len(b), err)
		}
	}
	if _, _, err := parseRequests(append(b, 0)); !errors.Is(err, errMessage) {
		t.Errorf("a byte too many is read: %v", err)
	}
	b[0]++
	for what, err := range map[string]error{
		"requests": func() error { _, _, err := parseRequests(b); return err }(),
		"replies":  func() error { _, err := parseReplies(b); return err }(),
		"places":   func() error { _, err := parsePlaces(b); return err }(),
	} {
		if !errors.Is(err, errMessage) {
			t.Errorf("%s of another format are read: %v", what, err)
		}
	}
	many := codec.AppendInt([]byte{wireFormat}, mostItems+1)
	if _, err := parseReplies(append(many, make([]byte, 2*mostItems)...)); !errors.Is(err, errMessage) {
		t.Errorf("more replies than a message has are read: %v", err)
	}
}

// fuzzLedger returns a ledger with a limit of each algorithm.
func fuzzLedger(t testing.TB) *ledger {
	limits := map[string]*Definition{}
	for i, r := range []limit.Rule{
		{Algorithm: limit.SlidingLog, Amount: 9, Window: time.Minute},
		{Algorithm: limit.SlidingWindow, Amount: 9, Window: time.Minute, Parts: 4},
		{Algorithm: limit.FixedWindow, Amount: 9, Window: time.Minute, Align: limit.FirstHit},
		{Algorithm: limit.TokenBucket, Amount: 9, Window: time.Minute},
		{Algorithm: limit.Concurrency, Amount: 9},
	} {
		rules, err := limittable.Compile(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("limit-", i)
		limits[name] = &Definition{Name: name, Rules: rules, MaxKeys: 100,
			Lends: r.Algorithm != limit.Concurrency}
	}
	boot := func() time.Duration { return 1e18 } // nothing here depends on the passing of time
	l := newLedger(boot, func(name string) *Definition { return limits[name] }, func(uint64, []place) {})
	l.lease.Store(1 << 62)
	return l
}

// streamed returns what a host with some usage sends to its standby.
func streamed(t testing.TB) []byte {
	l := fuzzLedger(t)
	k := newLink("standby", 5, nil)
	ask := func() {
		for i := range 10 {
			q := &request{kind: kindBorrow, shard: 3, limit: fmt.Sprint("limit-", i%5), key: "key"}
			q.Report = limittable.Report{Borrower: 1, Loan: 1, Need: 2, Least: 1, Want: 1}
			if i%5 == 4 {
				q.kind, q.n = kindTake, 1
			}
			l.do(q, &waiting{})
		}
	}
	l.host(3, basis{known: true})
	ask()
	l.copyTo(3, k)
	ask()
	b := binary.LittleEndian.AppendUint64([]byte{wireFormat}, k.stream)
	b = binary.LittleEndian.AppendUint64(b, 1)
	for _, r := range k.queue {
		b = append(b, r...)
	}
	return b
}

// A standby that takes over continues where the host stopped.
func TestAStandbyGoesOnWhereTheHostWas(t *testing.T) {
	l := fuzzLedger(t)
	if got := l.repeat(t.Context(), streamed(t)); len(got) != 1 || got[0] != 1 {
		t.Fatalf("answers %v", got)
	}
	if !l.take(3) {
		t.Fatal("no copy to take over")
	}
	l.host(3, basis{})
	for i := range 4 {
		q := &request{kind: kindBorrow, shard: 3, limit: fmt.Sprint("limit-", i), key: "key"}
		q.Report = limittable.Report{Borrower: 2, Loan: 1, Need: 9, Least: 1}
		r, _ := l.do(q, &waiting{})
		if r.given != 1 {
			t.Errorf("limit-%d: %d of 9 are lent while another holds 8: %+v", i, r.given, r)
		}
	}
}

// A standby whose rules are of another kind does not misinterpret what it receives.
func TestAStandbyWithOtherRules(t *testing.T) {
	l := fuzzLedger(t)
	was := l.rules
	l.rules = func(name string) *Definition {
		if name == "limit-1" {
			d := *was("limit-3")
			d.Name = name
			return &d
		}
		return was(name)
	}
	if got := l.repeat(t.Context(), streamed(t)); len(got) != 1 || got[0] != 1 || !l.take(3) {
		t.Fatalf("answers %v", got)
	}
	l.host(3, basis{})
	for i, want := range map[int]int64{0: 1, 1: 0, 2: 1} { // 0: as if all had been used
		q := &request{kind: kindBorrow, shard: 3, limit: fmt.Sprint("limit-", i), key: "key"}
		q.Report = limittable.Report{Borrower: 2, Loan: 1, Need: 9, Least: 1}
		if r, _ := l.do(q, &waiting{}); r.given != want {
			t.Errorf("limit-%d: %d of 9 are lent, want %d", i, r.given, want)
		}
	}
}

// FuzzMessages parses any bytes as each kind of message, and performs the requests.
func FuzzMessages(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	f.Add(appendRequests(nil, 1, someRequests(random)))
	f.Add(appendReplies(nil, []reply{{status: again, given: 3}, {status: moved}}))
	f.Add(appendPlaces(nil, []place{{"limit-1", "key"}}))
	f.Add(streamed(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		if who, rs, err := parseRequests(b); err == nil {
			ptrs := make([]*request, len(rs))
			for i := range rs {
				ptrs[i] = &rs[i]
			}
			_, again, err := parseRequests(appendRequests(nil, who, ptrs))
			if err != nil || !reflect.DeepEqual(rs, again) {
				t.Fatalf("%+v is read back as %+v, %v", rs, again, err)
			}
		}
		if rs, err := parseReplies(b); err == nil {
			again, err := parseReplies(appendReplies(nil, rs))
			if err != nil || !reflect.DeepEqual(rs, again) {
				t.Fatalf("%+v is read back as %+v, %v", rs, again, err)
			}
		}
		if ps, err := parsePlaces(b); err == nil {
			again, err := parsePlaces(appendPlaces(nil, ps))
			if err != nil || !reflect.DeepEqual(ps, again) {
				t.Fatalf("%+v is read back as %+v, %v", ps, again, err)
			}
		}
		l := fuzzLedger(t)
		l.repeat(t.Context(), b)
		for i := range Shards {
			l.host(i, basis{known: !l.take(i)})
		}
		l.answer(t.Context(), b)
		l.answer(t.Context(), appendRequests(nil, 1, someRequests(rand.New(rand.NewPCG(1, 2)))))
		l.expire()
	})
}
