package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// planned has 2 calls a minute for each key, and more for two plans.
func planned() Limit {
	return Limit{Name: "api", Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 2, Window: time.Minute},
		Plans: map[string]int64{"plus": 5, "pro": 10}, Overrides: map[string]int64{"big": 3}}
}

// passes calls until a call is refused, and returns how many passed.
func passes(t *testing.T, l *Limiter, plan, key string) (n int64) {
	t.Helper()
	for {
		v, err := l.Allow(t.Context(), Check{Limit: "api", Key: key, Cost: 1, Plan: plan})
		if err != nil {
			t.Fatal(err)
		}
		if !v.Allowed {
			return n
		}
		n++
	}
}

func TestEachPlanHasItsAmount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, planned())
		for _, c := range []struct {
			plan, key string
			want      int64
		}{
			{"plus", "bob", 5}, {"pro", "bob", 10}, {"", "bob", 2},
			{"Pro", "bob", 0}, {"none", "bob", 0}, // unknown plans are no plan: bob has used that up
			{"none", "eve", 2}, {"", "eve", 0},
			{"pro", "big", 3}, {"", "big", 0}, {"plus", "big", 0}, // an override is one amount, whatever the plan
			{"pro", "", 10}, {"", "", 2},
		} {
			if got := passes(t, l, c.plan, c.key); got != c.want {
				t.Errorf("plan %q, key %q: %d passed, want %d", c.plan, c.key, got, c.want)
			}
		}
		all, _, err := l.Keys("api", "", 100)
		listed := map[string]int64{}
		for _, u := range all {
			listed[u.Key] = u.Amount
		}
		if err != nil || listed["~plan:pro|bob"] != 10 || listed["bob"] != 2 || listed["~plan:plus|big"] != 0 {
			t.Errorf("%v %v", listed, err)
		}
		if v, err := l.Explain("api", "~plan:pro|bob"); err != nil || v.Remaining != 0 || v.Amount != 10 {
			t.Errorf("an operator looks at a listed key: %+v %v", v, err)
		}
		if v, err := l.Peek(t.Context(), Check{Limit: "api", Key: "bob", Plan: "pro"}); err != nil || v.Amount != 10 {
			t.Errorf("a look with a plan: %+v %v", v, err)
		}
		if err := l.Reset("api", "~plan:pro|bob"); err != nil {
			t.Error(err)
		}
		if got := passes(t, l, "pro", "bob"); got != 10 {
			t.Errorf("after a reset: %d", got)
		}
	})
}

// A plan that gets another amount, or is removed, while its callers have used some.
func TestPlansChangeUnderUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, planned())
		if got := passes(t, l, "plus", "bob"); got != 5 {
			t.Fatal(got)
		}
		set := func(plans map[string]int64) {
			t.Helper()
			if err := l.Update("api", func(c *Limit) error { c.Plans = plans; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		set(map[string]int64{"plus": 8})
		if got := passes(t, l, "plus", "bob"); got != 3 {
			t.Errorf("of 8 after 5: %d", got)
		}
		set(nil)
		if got := passes(t, l, "plus", "bob"); got != 2 { // no plan, with the key of one
			t.Errorf("without the plan: %d", got)
		}
	})
}

// Each plan of a key is counted by itself: a caller that changes its plan again and again has the amount of
// each plan once in a window, and never more of one.
func TestAChangeOfPlanGivesNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, planned())
		want := map[string]int64{"": 2, "plus": 5, "pro": 10}
		got := map[string]int64{}
		for i := range 300 {
			plan := []string{"pro", "", "plus", "gold"}[i%4]
			v, err := l.Allow(t.Context(), Check{Limit: "api", Key: "bob", Cost: 1, Plan: plan})
			if err != nil {
				t.Fatal(err)
			}
			if _, known := want[plan]; !known {
				plan = ""
			}
			if v.Allowed {
				got[plan]++
			}
			if i%50 == 0 { // an amount that changes to and fro gives nothing back either
				amounts := map[string]int64{"plus": 5, "pro": int64(10 - i/50%2*5)}
				if err := l.Update("api", func(c *Limit) error { c.Plans = amounts; return nil }); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("passed by plan: %v, want %v", got, want)
		}
	})
}

// Whoever chooses a key must not be counted as a caller with a plan.
func TestNobodyChoosesAPlanByItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, planned())
		for _, key := range []string{"~plan:pro|bob", "~plan:pro|", "~plan:", "~plan:pro|" + strings.Repeat("x", 200),
			"~plan:pro|~sha256:AAAAAAAAAAAAAAAAAAAAAAAA", countedKey("~plan:pro|bob")} {
			if got := passes(t, l, "", key); got != 2 {
				t.Errorf("key %q: %d passed, want 2", key, got)
			}
		}
		if got := passes(t, l, "pro", "bob"); got != 10 {
			t.Errorf("the plan itself: %d", got)
		}
	})
	h := Middleware(newLimiter(t, planned()), []RequestLimit{{Name: "api",
		Key: []KeyPart{{Kind: KeyHeader, Name: "X-Client"}}}}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i := range 3 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["X-Client"] = []string{"~plan:pro|bob"}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); (w.Code == http.StatusOK) != (i < 2) {
			t.Errorf("request %d: %d", i, w.Code)
		}
	}
}

func FuzzPlanKeys(f *testing.F) {
	for _, s := range []string{"bob", "~plan:pro|bob", "~plan:", "~sha256:AAAAAAAAAAAAAAAAAAAAAAAA", "~plan:pro|" +
		strings.Repeat("x", 100)} {
		f.Add("pro", s, "", s)
	}
	d, err := Limit{Name: "api", Rule: planned().Rule, Plans: map[string]int64{"pro": 1, "p": 2}}.define()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, plan, key, plan2, key2 string) {
		if len(key) > MaxKey || len(key2) > MaxKey {
			return
		}
		a, b := Check{Plan: plan, Key: key}, Check{Plan: plan2, Key: key2}
		one, two := d.counted(&a), d.counted(&b)
		same := d.planOf(plan, "") == d.planOf(plan2, "") && key == key2
		if (one == two) != same {
			t.Errorf("%+v is counted as %q, %+v as %q", a, one, b, two)
		}
		if limittable.IsPlanKey(one) != (d.planOf(plan, "") != "") {
			t.Errorf("%+v is counted as %q", a, one)
		}
		if len(one) > maxCounted+len(limittable.PlanKey("pro")) {
			t.Errorf("%d bytes", len(one))
		}
	})
}

// Asks that count under one key are one ask, whichever unknown plans they name.
func TestPlansInOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, planned())
		ask := func(want bool, asks ...Check) {
			t.Helper()
			vs, err := l.AllowAll(t.Context(), asks, true)
			for _, v := range vs {
				if err != nil || v.Allowed != want {
					t.Errorf("%+v: %+v %v", asks, v, err)
				}
			}
		}
		one := func(plan, key string, cost int64) Check { return Check{Limit: "api", Key: key, Cost: cost, Plan: plan} }
		ask(false, one("", "bob", 1), one("none", "bob", 2))
		ask(false, one("", "big", 2), one("pro", "big", 2))
		ask(true, one("", "bob", 2), one("none", "bob", -1), one("pro", "bob", 10))
		if got := passes(t, l, "", "bob"); got != 1 {
			t.Errorf("%d are left of bob, want 1", got)
		}
	})
}

// The keys beyond max_keys count together: no plan has more than its amount there.
func TestAFloodOfKeysWithPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := planned()
		c.MaxKeys, c.Amount, c.Plans, c.Overrides = 1, 50, map[string]int64{"small": 3, "pro": 100}, nil
		l := newLimiter(t, c)
		shared := false
		for i := range 600 { // some of the 256 parts are full, and not used up
			v, err := l.Allow(t.Context(), Check{Limit: "api", Key: fmt.Sprint(i), Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			shared = shared || v.Shared
		}
		if !shared {
			t.Fatal("no key is counted together with others")
		}
		for i := range 100 {
			if got := passes(t, l, "small", fmt.Sprint("new", i)); got > 3 {
				t.Fatalf("%d passed, 3 are the plan", got)
			}
		}
	})
}

func TestReservationsOfPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, planned(), Limit{Name: "calls", Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 1},
			Plans: map[string]int64{"pro": 2}})
		v, err := l.Reserve(t.Context(), Check{Limit: "api", Key: "bob", Cost: 10, Plan: "pro"}, time.Minute)
		if err != nil || !v.Allowed {
			t.Fatalf("%+v %v", v, err)
		}
		if err := l.Settle(t.Context(), Check{Limit: "api", Key: "bob", Cost: 4}, v.ID); !errors.Is(err, ErrNoReservation) {
			t.Errorf("settled without the plan: %v", err)
		}
		if err := l.Settle(t.Context(), Check{Limit: "api", Key: "bob", Cost: 4, Plan: "pro"}, v.ID); err != nil {
			t.Error(err)
		}
		if got := passes(t, l, "pro", "bob"); got != 6 {
			t.Errorf("%d passed, want 6", got)
		}
		call := Check{Limit: "calls", Key: "bob", Cost: 1, Plan: "pro"}
		v, err = l.Allow(t.Context(), call)
		if err != nil || !v.Allowed {
			t.Fatalf("%+v %v", v, err)
		}
		if err := l.Renew(t.Context(), call, v.ID); err != nil {
			t.Error(err)
		}
	})
}

func TestPlansThatCannotBe(t *testing.T) {
	many := map[string]int64{}
	for i := range MaxPlans + 1 {
		many[fmt.Sprint(i)] = 1
	}
	for _, plans := range []map[string]int64{{"": 1}, {"a|b": 1}, {"~": 1}, {"a b": 1}, {strings.Repeat("a", 33): 1},
		{"pro": -1}, {"pro": limit.MaxAmount + 1}, many} {
		c := planned()
		if c.Plans = plans; newErr(c) == nil {
			t.Errorf("accepted: %v", plans)
		}
	}
	c := planned()
	if c.Overrides = map[string]int64{"~plan:pro|bob": 7}; newErr(c) == nil {
		t.Error("an override of a key of a plan is accepted")
	}
}

func newErr(c Limit) error {
	_, err := New(Config{Limits: []Limit{c}})
	return err
}

// BenchmarkPlan is what a plan adds to the decision about a call: with one, and with one that the
// limit does not know.
func BenchmarkPlan(b *testing.B) {
	l, err := New(Config{Limits: []Limit{planned()}})
	if err != nil {
		b.Fatal(err)
	}
	for _, plan := range []string{"", "none", "pro"} {
		b.Run("plan="+plan, func(b *testing.B) {
			b.ReportAllocs()
			a := Check{Limit: "api", Key: "customer-4711", Plan: plan, Cost: 1}
			for b.Loop() {
				if _, err := l.Allow(b.Context(), a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A reservation is settled under the key that has it, also when a change has moved the key since.
func TestPlansChangeUnderReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := Limit{Name: "calls", Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 1}}
		l := newLimiter(t, planned(), calls)
		set := func(name string, plans map[string]int64) {
			t.Helper()
			if err := l.Update(name, func(c *Limit) error { c.Plans = plans; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		ask := Check{Limit: "api", Key: "bob", Cost: 10, Plan: "pro"}
		v, err := l.Reserve(t.Context(), ask, time.Minute)
		if err != nil || !v.Allowed {
			t.Fatalf("%+v %v", v, err)
		}
		set("api", nil)
		ask.Cost = 4
		if err := l.Settle(t.Context(), ask, v.ID); err != nil {
			t.Errorf("after its plan was removed: %v", err)
		}
		if err := l.Settle(t.Context(), ask, v.ID); !errors.Is(err, ErrNoReservation) {
			t.Errorf("settled twice: %v", err)
		}
		set("api", planned().Plans)
		if got := passes(t, l, "pro", "bob"); got != 6 {
			t.Errorf("%d passed, want 6", got)
		}

		call := Check{Limit: "calls", Key: "bob", Cost: 1, Plan: "pro"}
		if v, err = l.Allow(t.Context(), call); err != nil || !v.Allowed {
			t.Fatalf("%+v %v", v, err)
		}
		set("calls", map[string]int64{"pro": 2})
		call.Cost = 0
		if err := l.Settle(t.Context(), call, v.ID); err != nil {
			t.Errorf("after its plan was added: %v", err)
		}
		if v, err = l.Allow(t.Context(), Check{Limit: "calls", Key: "bob", Cost: 1}); err != nil || !v.Allowed {
			t.Errorf("the slot is not free: %+v %v", v, err)
		}
	})
}

// Limits with one PlanSource ask it once for a request, and those with another one are not given its answer.
func TestAPlanIsLookedUpOnceForARequest(t *testing.T) {
	rule := limit.Rule{Algorithm: limit.SlidingLog, Amount: 1, Window: time.Hour}
	plans := map[string]int64{"pro": 3, "plus": 2}
	l, err := New(Config{Limits: []Limit{{Name: "calls", Rule: rule, Plans: plans},
		{Name: "tokens", Rule: rule, Plans: plans}, {Name: "budget", Rule: rule, Plans: plans}}})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	source := &PlanSource{Of: func(*http.Request) string { asked++; return "pro" }}
	key := []KeyPart{}
	h := Middleware(l, []RequestLimit{{Name: "calls", Key: key, Plan: source},
		{Name: "tokens", Key: key, Plan: source, Settle: &Settle{Field: "usage"}},
		{Name: "budget", Key: key, Plan: &PlanSource{Of: func(*http.Request) string { return "plus" }}}},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i, want := range []int{200, 200, 429} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if w.Code != want || asked != i+1 {
			t.Errorf("call %d: %d, want %d; the plan was asked for %d times", i+1, w.Code, want, asked)
		}
	}
}
