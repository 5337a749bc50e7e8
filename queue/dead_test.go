package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

func TestWhoDiedLastIsListedFirst(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWhoDiedLastIsListedFirst)
}

func testWhoDiedLastIsListedFirst(t *testing.T) {
	refuse := map[string]chan bool{}
	for _, body := range []string{"a", "b", "c", "d", "e"} {
		refuse[body] = make(chan bool)
	}
	b := newBench(t, nil)
	target := handlerFunc(func(ctx context.Context, j *Job) Outcome {
		select {
		case <-refuse[string(j.Body)]:
		case <-ctx.Done():
		}
		return Outcome{Err: errors.New("no")}
	})
	set := *b.q.set.Load()
	set.Handler = target
	if err := b.q.Reconfigure(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"a", "b", "c", "d", "e"} {
		b.put(Job{Key: body, Body: []byte(body)})
	}
	died := 0
	die := func(body string) {
		t.Helper()
		now := time.Now().UnixMilli()
		until(t, "another millisecond", func() bool { return time.Now().UnixMilli() > now })
		close(refuse[body])
		died++
		until(t, body+" is dead", func() bool { return b.status().Dead == died })
	}
	list := func(after string, count int) (keys string, next string) {
		t.Helper()
		dead, next, err := b.q.Dead(t.Context(), DeadFilter{}, after, count)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range dead {
			keys += j.Key
		}
		return keys, next
	}
	for _, body := range []string{"c", "a", "d", "b"} {
		die(body)
	}
	first, place := list("", 2)
	if first != "bd" || place == "" {
		t.Fatalf("the first two are %q, and then %q, want those who died last, b and d", first, place)
	}
	die("e")
	if rest, next := list(place, 2); rest != "ac" || next != "" {
		t.Errorf("behind them are %q and %q, want a and c and no more", rest, next)
	}
	if all, next := list("", 5); all != "ebdac" || next != "" {
		t.Errorf("all are %q %q", all, next)
	}
	if none, next := list("", 0); none != "" || next != "" {
		t.Errorf("none are %q %q", none, next)
	}
	for _, place := range []string{"x", "7-0", "7-0@", "@1", "7@1", "7-0@1@1"} {
		if _, _, err := b.q.Dead(t.Context(), DeadFilter{}, place, 1); !errors.Is(err, ErrPlace) {
			t.Errorf("behind %q: %v", place, err)
		}
	}
	b.end()
	b.start()
	b.hosts()
	if again, next := list(place, 5); again != "ac" || next != "" {
		t.Errorf("after a restart %q and %q stand behind that place", again, next)
	}
	if n, err := b.q.PurgeDead(t.Context(), DeadFilter{}); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if all, next := list("", 5); all != "" || next != "" {
		t.Errorf("none is left, but %q %q", all, next)
	}
}

type handlerFunc func(ctx context.Context, j *Job) Outcome

func (f handlerFunc) Deliver(ctx context.Context, j *Job) Outcome { return f(ctx, j) }

func died(n int) *index {
	x := newIndex(nil, time.Hour)
	for i := range n {
		at := rand.Int64N(int64(n)/2 + 1) // some in the same millisecond
		x.dead[refOf(uint64(i/100), i%100)] = deadJob{at: at, why: fmt.Sprint(i)}
	}
	return x
}

func TestPagesOfTheDeadAreAllOfThemInOrder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 99, 5000} {
		x := died(n)
		var want []death
		for r, d := range x.dead {
			want = append(want, death{r, d})
		}
		slices.SortFunc(want, func(a, b death) int {
			if a.at == b.at {
				return int(b.ref) - int(a.ref)
			}
			return int(b.at - a.at)
		})
		for _, count := range []int{1, 7, 1000, 6000} {
			if n == 5000 && count == 1 {
				continue // 25 million looks
			}
			all, got := &DeadFilter{}, []death(nil)
			page := x.lastDead(all, nil, count)
			for ; len(page) > 0; page = x.lastDead(all, &got[len(got)-1], count) {
				if len(page) > count {
					t.Fatalf("%d on a page of %d", len(page), count)
				}
				got = append(got, page...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("of %d dead, %d at once, %d were listed, or in another order", n, count, len(got))
			}
		}
	}
}

// BenchmarkLastDead lists one page of a queue that has the maximum number of dead jobs.
func BenchmarkLastDead(b *testing.B) {
	x := died(maxDead)
	b.ReportAllocs()
	for b.Loop() {
		if len(x.lastDead(&DeadFilter{}, nil, 200)) != 200 {
			b.Fatal("too few")
		}
	}
}

// A filter means the same jobs for the list, Redrive and PurgeDead, also after a restart.
func TestAPartOfTheDeadIsRedriven(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAPartOfTheDeadIsRedriven)
}

func testAPartOfTheDeadIsRedriven(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Concurrency = 1 })
	b.target.answers(func(j *Job) Outcome {
		code := 400
		if j.Key == "gone" {
			code = 410
		}
		return Outcome{Err: errors.New("no"), Status: code}
	})
	died := map[string]time.Time{}
	var ids []string
	for i, j := range []Job{{Tenant: "a"}, {Tenant: "b"}, {Tenant: "a", Key: "gone"}, {}, {Tenant: "b"}} {
		j.Body = fmt.Append(nil, i)
		ids = append(ids, b.put(j)[0].ID)
		until(t, "dead", func() bool { return b.status().Dead == i+1 })
		died[ids[i]] = b.job(JobName{ID: ids[i]}).Ended
		time.Sleep(time.Second)
	}
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sum []note
	b.index(func(x *index) { sum = x.restate(0) })
	sum, err := parseNotes(encodeNotes(sum))
	gone := func(n note) bool { return n.kind == noteDead && n.code == 410 }
	if !slices.ContainsFunc(sum, gone) || err != nil {
		t.Errorf("a sum of the notes: %+v %v", sum, err)
	}
	b.restart()
	a, none := "a", ""
	for i, c := range []struct {
		of   DeadFilter
		want []int
	}{
		{DeadFilter{}, []int{0, 1, 2, 3, 4}},
		{DeadFilter{Tenant: &a}, []int{0, 2}},
		{DeadFilter{Tenant: &none}, []int{3}},
		{DeadFilter{Status: 410}, []int{2}},
		{DeadFilter{Status: 410, Tenant: &none}, nil},
		{DeadFilter{Since: died[ids[1]], Before: died[ids[4]]}, []int{1, 2, 3}},
		{DeadFilter{Most: 2}, []int{0, 1}},
		{DeadFilter{Tenant: &a, Most: 1}, []int{0}},
		{DeadFilter{IDs: []string{ids[4], ids[4], ids[1], "x"}}, []int{1, 4}},
		{DeadFilter{IDs: []string{ids[4], ids[0]}, Tenant: &a}, []int{0}},
	} {
		var want, got []string
		for _, k := range c.want {
			want = append(want, ids[k])
		}
		list, _, err := b.q.Dead(t.Context(), c.of, "", 10)
		for _, j := range slices.Backward(list) {
			got = append(got, j.ID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d: listed %v %v, want %v", i, got, err, want)
		}
		if n, err := b.q.Redrive(t.Context(), c.of); n != len(want) || err != nil {
			t.Errorf("%d: redriven %d %v, want %d", i, n, err, len(want))
		}
		for _, id := range ids {
			if is := b.job(JobName{ID: id}).State; (is == StateWaiting) != slices.Contains(want, id) {
				t.Errorf("%d: %s is %s, want %v", i, id, is, want)
			}
		}
		if err := b.q.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "dead again", func() bool { return b.status().Dead == len(ids) })
		if err := b.q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.index(func(x *index) { // as before
			for r, d := range x.dead {
				d.at = died[r.String()].UnixMilli()
				x.dead[r] = d
			}
		})
	}
	n, err := b.q.PurgeDead(t.Context(), DeadFilter{Tenant: &a})
	if n != 2 || err != nil || b.status().Dead != 3 {
		t.Errorf("purged %d %v", n, err)
	}
	_, err = b.q.Redrive(t.Context(), DeadFilter{Status: -1})
	if !errors.Is(err, ErrJob) || b.status().Dead != 3 {
		t.Error(err)
	}
}

// index changes the index of the host.
func (b *bench) index(change func(*index)) {
	h := b.q.lead.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h.index)
}
