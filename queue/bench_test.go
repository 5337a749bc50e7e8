//go:build unix

package queue

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPut puts jobs of 250 bytes with a key, from many clients at once or from one client with
// many jobs at a time. Each job is on disk before its answer.
func BenchmarkPut(b *testing.B) {
	for _, c := range []struct{ clients, each int }{{64, 1}, {4, 1000}} {
		b.Run(fmt.Sprintf("clients=%d,each=%d", c.clients, c.each), func(b *testing.B) {
			f := newBench(b, nil).hosts()
			if err := f.q.Pause(b.Context()); err != nil {
				b.Fatal(err)
			}
			body := make([]byte, 250)
			b.ReportAllocs()
			begin := time.Now()
			var wg sync.WaitGroup
			for k := range c.clients {
				wg.Go(func() {
					for i := k; i < b.N; i += c.clients * c.each {
						jobs := make([]Job, min(c.each, b.N))
						for n := range jobs {
							jobs[n] = Job{Key: fmt.Sprintf("%d-%d-%d", k, i, n), Body: body}
						}
						if _, err := f.q.Put(context.Background(), jobs); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(f.q.totals.put.Load())/time.Since(begin).Seconds(), "jobs/s")
		})
	}
}

// BenchmarkDeliver delivers jobs of 250 bytes to a target that answers at once, with and without
// outcomes that are remembered.
func BenchmarkDeliver(b *testing.B) {
	for _, outcomes := range []int{-1, DefaultOutcomes} {
		b.Run(fmt.Sprintf("outcomes=%d", max(0, outcomes)), func(b *testing.B) { deliver(b, outcomes) })
	}
}

// cpu returns the processor time of this process in microseconds.
func cpu(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1000
}

func deliver(b *testing.B, outcomes int) {
	f := newBench(b, func(c *Config) { c.Outcomes = outcomes }).hosts()
	if err := f.q.Pause(b.Context()); err != nil {
		b.Fatal(err)
	}
	f.load(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	begin := cpu(b)
	if err := f.q.Resume(b.Context()); err != nil {
		b.Fatal(err)
	}
	for range b.N {
		<-f.target.seen
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric((cpu(b)-begin)/float64(b.N), "µs-cpu/op")
}

// load puts n jobs of 250 bytes with a key.
func (b *bench) load(n int) {
	body := make([]byte, 250)
	for i := 0; i < n; i += 10_000 {
		jobs := make([]Job, min(10_000, n-i))
		for k := range jobs {
			jobs[k] = Job{Key: fmt.Sprintf("key-%d", i+k), Body: body}
		}
		b.put(jobs...)
	}
	until(b.t, "all known", func() bool { return b.status().Depth == n })
}

// BenchmarkWaiting measures the memory of a waiting job with its key.
func BenchmarkWaiting(b *testing.B) {
	f := newBench(b, nil).hosts()
	if err := f.q.Pause(b.Context()); err != nil {
		b.Fatal(err)
	}
	const n = 1_000_000
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	f.load(n)
	for b.Loop() {
		runtime.Gosched()
	}
	b.ReportMetric((heap()-before)/1e6, "MB/million")
}

// BenchmarkLookUp looks at jobs by ID and by key, while ten million wait.
func BenchmarkLookUp(b *testing.B) {
	const n = 10_000_000
	f := newBench(b, func(c *Config) { c.MaxWaiting = 2 * n }).hosts()
	if err := f.q.Pause(b.Context()); err != nil {
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ids := make([]string, 0, n/1000)
	for i := 0; i < n; i += 10_000 {
		jobs := make([]Job, 10_000)
		for k := range jobs {
			jobs[k] = Job{Key: fmt.Sprintf("key-%d", i+k)}
		}
		for k, r := range f.put(jobs...) {
			if k%1000 == 0 {
				ids = append(ids, r.ID)
			}
		}
	}
	until(b, "all known", func() bool { return f.status().Depth == n })
	runtime.GC()
	runtime.ReadMemStats(&after)
	memory := float64(after.HeapAlloc-before.HeapAlloc) / n
	for _, by := range []string{"id", "key"} {
		b.Run("by="+by, func(b *testing.B) {
			begin := cpu(b)
			for i := range b.N {
				name := JobName{ID: ids[i*7919%len(ids)]}
				if by == "key" {
					name = JobName{Key: fmt.Appendf(nil, "key-%d", i*7919%n)}
				}
				s, err := f.q.Job(b.Context(), name, 0)
				if err != nil || s.State != StateWaiting {
					b.Fatal(s, err)
				}
			}
			b.ReportMetric((cpu(b)-begin)/float64(b.N), "µs-cpu/op")
			b.ReportMetric(memory, "B/job")
		})
	}
}

// BenchmarkPull claims and acknowledges jobs of 250 bytes, a hundred at a time, by workers at once. Each
// claim and each acknowledgment is on disk before its answer.
func BenchmarkPull(b *testing.B) {
	for _, workers := range []int{1, 8} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			f := newBench(b, func(c *Config) { c.Handler, c.Lease = nil, time.Minute }).hosts()
			f.load(b.N)
			b.ReportAllocs()
			b.ResetTimer()
			begin := cpu(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for left.Load() > 0 {
						got, err := f.q.Claim(b.Context(), Want{Max: 100, Wait: 10 * time.Millisecond})
						if err == nil && len(got) > 0 {
							_, err = f.q.Ack(b.Context(), receiptsOf(got)...)
						}
						if err != nil {
							b.Error(err)
							return
						}
						left.Add(int64(-len(got)))
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric((cpu(b)-begin)/float64(b.N), "µs-cpu/op")
		})
	}
}

// BenchmarkOrder measures what a million jobs with order keys cost that wait while one key has a million
// more, and how long jobs of a key take to leave in turn.
func BenchmarkOrder(b *testing.B) {
	const n = 1_000_000
	for _, keys := range []int{1, 1000, n} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			x := newIndex(nil, 0)
			for chunk := range n / 1000 {
				jobs := make([][]byte, 1000)
				for i := range jobs {
					jobs[i] = appendJob(nil, &Job{Cost: 1, OrderKey: fmt.Sprint("o", (chunk*1000+i)%keys)})
				}
				x.add(uint64(chunk+1), time.Now(), jobs, nil)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ResetTimer()
			sent := 0
			for b.Loop() {
				r, t, ok := x.peek()
				if !ok {
					break
				}
				x.take(t, 1, 0)
				x.finish(r)
				x.release(r)
				sent++
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/job")
		})
	}
}
