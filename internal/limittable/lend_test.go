package limittable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

func tenAMinute() limit.Rule {
	return limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute}
}

// lends lends to a borrower.
func lends(t *Table, now Time, r Report) LoanState { return t.Borrow(now, now, 1, "k", &r) }

// Lending ahead is max-min fair, by the definition: no borrower gets more unless those that have
// less have all they want (Bertsekas and Gallager 1992, §6.5.2).
func TestAheadIsMaxMinFair(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 21))
		e := &entry{more: &more{loans: make([]loan, 1+random.IntN(6))}}
		for i := range e.more.loans {
			x := &e.more.loans[i]
			*x = loan{who: uint64(i), given: random.Int64N(30), want: random.Int64N(40) * random.Int64N(2)}
			e.more.lent += x.out()
		}
		x, spare := &e.more.loans[random.IntN(len(e.more.loans))], random.Int64N(60)
		// One unit after the other, to the borrower that has least and wants more. No borrower
		// gives back.
		level := make([]int64, len(e.more.loans))
		for rest := spare + e.more.lent; rest > 0; rest-- {
			least := -1
			for i := range level {
				y := &e.more.loans[i]
				if level[i] < max(y.want, y.out()) && (least < 0 || level[i] < level[least]) {
					least = i
				}
			}
			if least < 0 {
				break
			}
			level[least]++
		}
		want := min(spare, max(0, min(x.want, slices.Max(level), level[x.who]+1)-x.out()))
		got := e.ahead(x, spare)
		// Units are indivisible: in the last round some borrowers get one and others none.
		if got > want || got < want-1 && got < spare {
			t.Fatalf("seed %d: %d ahead of %d, want %d or one less: %+v", seed, got, spare, want,
				e.more.loans)
		}
	}
}

// The time when everything is back is the same whether units were taken or lent: what is lent is
// used now at the earliest.
func TestResetOfWhatIsLent(t *testing.T) {
	rules := []limit.Rule{
		tenAMinute(), {Algorithm: limit.SlidingLog, Amount: 10_000, Window: time.Minute},
		{Algorithm: limit.SlidingWindow, Amount: 10, Window: time.Minute},
		{Algorithm: limit.SlidingWindow, Amount: 10, Window: time.Minute, Parts: 7},
		{Algorithm: limit.FixedWindow, Amount: 10, Window: time.Minute},
		{Algorithm: limit.FixedWindow, Amount: 10, Window: time.Minute, Align: limit.FirstHit},
		{Algorithm: limit.FixedWindow, Amount: 10, Align: limit.Day},
		{Algorithm: limit.TokenBucket, Amount: 10, Window: 77 * time.Second, Burst: 30},
		{Algorithm: limit.LeakyBucket, Amount: 10, Window: 77 * time.Second},
	}
	for _, r := range rules {
		for _, before := range []int64{0, 3} {
			now := lendBegan
			taken, lent := newTable(t, r, nil, 10), newTable(t, r, nil, 10)
			taken.Take(now, 1, "k", before)
			lent.Take(now, 1, "k", before)
			now += Time(13 * time.Second)
			want, _ := taken.Take(now, 1, "k", 4)
			l := lends(lent, now, Report{Borrower: 1, Loan: 1, Need: 4, Least: 4})
			if l.Reset != want.Reset {
				t.Errorf("%s, %d used: lent 4, whole again in %v, want %v", name(r), before, l.Reset,
					want.Reset)
			}
			if p := lent.Peek(now, 1, "k", 0); p.Reset != want.Reset {
				t.Errorf("%s, %d used: looked at, whole again in %v, want %v", name(r), before, p.Reset,
					want.Reset)
			}
		}
	}
}

// Lost usage counts from the given moment, also in a table that begins long after it.
func TestWhatWasLostCountsFromThen(t *testing.T) {
	for _, r := range []limit.Rule{
		tenAMinute(), {Algorithm: limit.SlidingWindow, Amount: 10, Window: time.Minute, Parts: 6},
		{Algorithm: limit.FixedWindow, Amount: 10, Window: time.Minute},
		{Algorithm: limit.FixedWindow, Amount: 10, Window: time.Minute, Align: limit.FirstHit},
		{Algorithm: limit.TokenBucket, Amount: 10, Window: time.Minute},
		{Algorithm: limit.Concurrency, Amount: 10, Lease: time.Minute},
	} {
		for ago, want := range map[time.Duration]bool{0: false, 10 * time.Second: false, time.Hour: true} {
			table := newTable(t, r, nil, 10)
			table.Take(lendBegan, 1, "other", 1) // advances the table's clock
			table.Presume(lendBegan - Time(ago))
			d, err := table.Take(lendBegan, 2, "k", 10)
			if err != nil || d.Allowed != want {
				t.Errorf("%s, lost %v ago: allowed %v, want %v, %v", name(r), ago, d.Allowed, want, err)
			}
			if d.Retry > 70*time.Second {
				t.Errorf("%s, lost %v ago: passes in %v", name(r), ago, d.Retry)
			}
		}
	}
}

// Deleting usage does not delete loans: they may still be used.
func TestResetKeepsWhatIsLent(t *testing.T) {
	for _, r := range lendRules(rand.New(rand.NewPCG(2, 2))) {
		r.Amount = 10
		if r.Burst > 0 {
			r.Burst = 10
		}
		table, now := newTable(t, r, nil, 10), lendBegan
		table.Take(now, 1, "k", 3)
		lends(table, now, Report{Borrower: 1, Loan: 1, Need: 4, Least: 4})
		table.Reset(1)
		for i := range 20 { // other keys come, and the key is checked
			table.Take(now, uint64(i)+9, fmt.Sprint(i), 1)
		}
		if l := lends(table, now, Report{Borrower: 2, Loan: 1, Need: 10, Least: 1}); l.Given != 6 {
			t.Errorf("%s: %d of 10 are lent after a reset while another holds 4", name(r), l.Given)
		}
		if l := lends(table, now, Report{Borrower: 1, Loan: 1, Used: 4}); l.Booked != 4 {
			t.Errorf("%s: %d booked after a reset, want 4", name(r), l.Booked)
		}
	}
}

// Rules may change while something is lent: it still counts, and is used until the end of the term.
func TestRulesChangeWhileLent(t *testing.T) {
	to := append(lendRules(rand.New(rand.NewPCG(3, 2))),
		limit.Rule{Algorithm: limit.Concurrency, Amount: 5},
		limit.Rule{Algorithm: limit.LeakyBucket, Amount: 5, Window: time.Second, Paced: true})
	for _, r := range to {
		table, now := newTable(t, tenAMinute(), nil, 10), lendBegan
		lends(table, now, Report{Borrower: 1, Loan: 1, Need: 4, Least: 4})
		table.SetRules(now, compiled(t, r, nil), 10)
		most := r.MaxCost()
		if d := table.Peek(now, 1, "k", 0); d.Remaining != max(0, most-4) {
			t.Errorf("%s: %d remain of %d while 4 are lent", name(r), d.Remaining, most)
		}
		lends(table, now, Report{Borrower: 1, Loan: 1, Used: 4})
		table.Expire(now, now+LendTerm+1, nil)
		if n := table.Lent(1); n != 0 {
			t.Errorf("%s: %d still lent", name(r), n)
		}
		now += Time(max(r.Window, time.Hour)) * 3
		if d := table.Peek(now, 1, "k", most); !d.Allowed {
			t.Errorf("%s: %d of %d remain long after", name(r), d.Remaining, most)
		}
	}
}

// A message that closes a loan may be late: what was lent since may be used.
func TestALateCloseTakesNothingBack(t *testing.T) {
	table, now := newTable(t, tenAMinute(), nil, 10), lendBegan
	lends(table, now, Report{Borrower: 1, Loan: 1, Need: 2, Least: 2})
	lends(table, now, Report{Borrower: 1, Loan: 1, Used: 2, Need: 8, Least: 8})
	if l := lends(table, now, Report{Borrower: 1, Loan: 1, Used: 2, Close: true}); l.Closed {
		t.Error("closed while 8 are out")
	}
	if l := lends(table, now, Report{Borrower: 2, Loan: 1, Need: 1, Least: 1}); l.Allowed {
		t.Error("11 of 10 are lent or used")
	}
}

// A message of an earlier loan has no effect.
func TestALoanThatIsOver(t *testing.T) {
	table, now := newTable(t, tenAMinute(), nil, 10), lendBegan
	lends(table, now, Report{Borrower: 1, Loan: 2, Need: 2, Least: 2})
	if l := lends(table, now, Report{Borrower: 1, Loan: 1, Used: 1, Back: 1, Need: 3, Least: 1}); l.Allowed ||
		l.Given != 2 || table.Lent(1) != 2 {
		t.Errorf("%+v, %d lent", l, table.Lent(1))
	}
}

// A lender that has forgotten a loan continues from the borrower's report: both know what it lends
// after that.
func TestALenderThatForgotGoesOn(t *testing.T) {
	table, now := newTable(t, tenAMinute(), nil, 10), lendBegan
	late := Report{Borrower: 1, Loan: 1, Used: 3, Need: 1, Least: 1}
	lends(table, now, late)
	l := lends(table, now, Report{Borrower: 1, Loan: 1, Used: 50, Back: 20, Need: 5, Least: 5})
	if l.Given != 75 || l.Used != 50 || l.Back != 20 || table.Lent(1) != 5 {
		t.Errorf("%+v, %d lent, want 75 given of which 5 are out", l, table.Lent(1))
	}
}

// A clock faster than the lender's does not make uses older than they are.
func TestTheAgeOfAUseAllowsForDrift(t *testing.T) {
	table, used := newTable(t, tenAMinute(), nil, 10), lendBegan
	lends(table, used, Report{Borrower: 1, Loan: 1, Need: 10, Least: 10})
	now := used + 4*Time(time.Second)
	fast := time.Duration(now-used) * (lendDrift + 1) / (lendDrift - 1)
	lends(table, now, Report{Borrower: 1, Loan: 1, Used: 10, Age: fast})
	if d := table.Peek(used+Time(time.Minute)-1, 1, "k", 1); d.Allowed {
		t.Error("11 of 10 in a minute")
	}
	if d := table.Peek(used+Time(time.Minute+10*time.Millisecond), 1, "k", 10); !d.Allowed {
		t.Error("later than drift explains")
	}
}

// A borrower that is silent for a term has used everything. The standby table replicates this and
// must not lend it again.
func TestWhoIsSilentHasUsedAll(t *testing.T) {
	table, second, now := newTable(t, tenAMinute(), nil, 10), newTable(t, tenAMinute(), nil, 10), lendBegan
	r := Report{Borrower: 1, Loan: 1, Need: 10, Least: 10}
	l := lends(table, now, r)
	second.Replicate(now, now, 1, "k", &Entry{Kind: EntryLend, At: now, Borrower: 1, Loan: 1, Given: l.Given})
	table.Expire(now, now+LendTerm, func(string, *Entry) { t.Error("too early") })
	told := 0
	table.Expire(now, now+LendTerm+1, func(key string, d *Entry) {
		told++
		second.Replicate(now, now, 1, key, d)
	})
	for what, table := range map[string]*Table{"first": table, "second": second} {
		if d := table.Peek(now, 1, "k", 1); told != 1 || d.Allowed || table.Lent(1) != 0 {
			t.Errorf("%s: told %d times; %+v, %d lent", what, told, d, table.Lent(1))
		}
	}
}

// A full table takes requests for an unknown key at once, together with all other unknown keys.
func TestAFullTableLendsNothing(t *testing.T) {
	table, now := newTable(t, tenAMinute(), nil, 1), lendBegan
	table.Take(now, 7, "known", 1)
	l := lends(table, now, Report{Borrower: 1, Loan: 1, Used: 5, Back: 1, Need: 4, Least: 2, Want: 9})
	if !l.Allowed || !l.Shared || l.Given != 10 || l.Booked != 4 || table.Lent(1) != 0 {
		t.Errorf("%+v", l)
	}
	if l = lends(table, now, Report{Borrower: 2, Loan: 1, Need: 9, Least: 7}); l.Allowed || l.Given != 0 {
		t.Errorf("%+v", l)
	}
	if l = lends(table, now, Report{Borrower: 2, Loan: 1, Need: 9, Least: 1}); !l.Allowed || l.Given != 6 {
		t.Errorf("of nine 6 are left: %+v", l)
	}
	if l = lends(table, now, Report{Borrower: 2, Loan: 1, Need: 9, Least: 1}); l.Allowed || l.Given != 0 {
		t.Errorf("%+v", l)
	}
}

// Amounts at the bounds neither overflow nor pass.
func TestAmountsAtTheBounds(t *testing.T) {
	r := limit.Rule{Algorithm: limit.TokenBucket, Amount: limit.MaxAmount, Window: limit.MaxWindow,
		Burst: limit.MaxAmount}
	table, now := newTable(t, r, nil, 10), lendBegan
	for who := range uint64(4) {
		lends(table, now, Report{Borrower: who, Loan: 1, Need: limit.MaxAmount, Least: 1,
			Want: limit.MaxAmount})
	}
	if n := table.Lent(1); n != limit.MaxAmount {
		t.Errorf("%d lent of %d", n, int64(limit.MaxAmount))
	}
	for _, bad := range []Report{
		{Borrower: 9, Need: limit.MaxAmount + 1}, {Borrower: 9, Need: -1},
		{Borrower: 9, Want: limit.MaxAmount + 1}, {Borrower: 9, Want: -1},
		{Borrower: 9, Used: -1}, {Borrower: 9, Back: -1},
		{Borrower: 9, Need: 1, Least: 2}, {Borrower: 9, Least: -1},
		{Borrower: 9, Used: owedMost + 1, Need: 1}, {Borrower: 9, Back: 1<<63 - 1, Used: owedMost, Need: 1},
	} {
		if l := lends(table, now, bad); l.Allowed || l.Booked != 0 || table.Lent(1) != limit.MaxAmount {
			t.Errorf("%+v: %+v", bad, l)
		}
	}
	lends(table, now, Report{Borrower: 1, Loan: 1, Used: owedMost, Back: owedMost})
	if _, e := table.slot(1); e.lent() < 0 || e.lent() > limit.MaxAmount || e.b < 0 {
		t.Errorf("%d lent, %d used", e.lent(), e.b)
	}
}

// Lending of a known key allocates nothing.
func TestLendingAllocatesNothing(t *testing.T) {
	r := limit.Rule{Algorithm: limit.TokenBucket, Amount: limit.MaxAmount, Window: time.Minute}
	table, used := newTable(t, r, nil, 10), int64(0)
	ask := func() {
		lent := table.Borrow(lendBegan, lendBegan, 1, "k",
			&Report{Borrower: 1, Loan: 1, Used: used, Need: 2, Least: 1, Want: 50})
		used = lent.Given - 1
	}
	ask()
	if n := testing.AllocsPerRun(1000, ask); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// Returned units come back once, however often the report is repeated.
func TestWhatIsGivenBackTwice(t *testing.T) {
	table, now := newTable(t, tenAMinute(), nil, 10), lendBegan
	lends(table, now, Report{Borrower: 1, Loan: 1, Need: 8, Least: 8})
	for range 3 {
		lends(table, now, Report{Borrower: 1, Loan: 1, Back: 2})
	}
	if n := table.Lent(1); n != 6 {
		t.Errorf("%d lent of 8 of which 2 came back", n)
	}
}

// A table that takes over counts its borrowers as having just reported, by its own clock, and gives
// them a full term.
func TestWhoTakesOverHasHeardOfAllBorrowers(t *testing.T) {
	table, now, clk := newTable(t, tenAMinute(), nil, 10), lendBegan, Time(1e12)
	l := lends(table, now, Report{Borrower: 1, Loan: 1, Need: 8, Least: 8})
	copied, repeats := newTable(t, tenAMinute(), nil, 10), newTable(t, tenAMinute(), nil, 10)
	if err := copied.ReadKey(table.AppendKey(nil, 0), clk, func(string) uint64 { return 1 }); err != nil {
		t.Fatal(err)
	}
	repeats.Replicate(now, clk, 1, "k",
		&Entry{Kind: EntryLend, At: now, Borrower: 1, Loan: 1, Given: l.Given})
	for _, table := range []*Table{copied, repeats} {
		if table.Expire(now, clk+LendTerm, nil); table.Lent(1) != 8 {
			t.Errorf("%d lent, want 8: they may be used yet", table.Lent(1))
		}
		table.RenewBorrowers(clk + Time(time.Hour))
		if table.Expire(now, clk+Time(time.Hour)+LendTerm, nil); table.Lent(1) != 8 {
			t.Errorf("%d lent, want 8: it has just taken over", table.Lent(1))
		}
		if table.Expire(now, clk+Time(time.Hour)+LendTerm+1, nil); table.Lent(1) != 0 {
			t.Errorf("%d lent after the term", table.Lent(1))
		}
	}
}
