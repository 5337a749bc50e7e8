package slot

import (
	"testing"
	"time"
)

const benchWaiting = 10_000_000

func benchLine(b *testing.B) *Line {
	b.Helper()
	l := NewLine(1)
	for range benchWaiting {
		l.Join(0, 30*time.Second, minute5)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return l
}

// scattered returns numbers all over the line, so that no place is in a cache.
func scattered(i int) uint64 { return 1 + uint64(i)*7_368_787%benchWaiting }

func BenchmarkLineJoin(b *testing.B) {
	b.ReportAllocs()
	l := NewLine(1)
	for i := 0; b.Loop(); i++ {
		if i == benchWaiting {
			l, i = NewLine(1), 0
		}
		l.Join(0, 30*time.Second, minute5)
	}
}

func BenchmarkLinePosition(b *testing.B) {
	l := benchLine(b)
	for i := 0; b.Loop(); i++ {
		if _, ok := l.Position(scattered(i)); !ok {
			b.Fatal("no position")
		}
	}
}

func BenchmarkLineSeen(b *testing.B) {
	l := benchLine(b)
	for i := 0; b.Loop(); i++ {
		l.Polled(scattered(i), sec, 30*time.Second)
	}
}

// BenchmarkLineTurnover measures one visitor's way through a full line: call, use, and another
// join.
func BenchmarkLineTurnover(b *testing.B) {
	l := benchLine(b)
	for b.Loop() {
		n, ok := l.Call(0)
		if !ok || !l.Use(n) {
			b.Fatal("nobody is called")
		}
		l.Join(0, 30*time.Second, minute5)
	}
}

// BenchmarkLineExpire measures one sweep over 1,000 places whose hold has not ended.
func BenchmarkLineExpire(b *testing.B) {
	l := benchLine(b)
	for b.Loop() {
		l.Expire(sec, 1000)
	}
}

// BenchmarkLineSkipped measures a record whose space for skipped tickets is full.
func BenchmarkLineSkipped(b *testing.B) {
	l := NewLine(1)
	for n := range uint64(60_000) {
		l.Join(0, time.Second, minute5)
		if n%2 == 1 {
			l.Leave(n + 1)
		}
	}
	l.Call(10 * sec)
	var runs []Run
	b.ReportAllocs()
	for b.Loop() {
		runs = l.AppendSkipped(runs[:0], skippedBytes)
	}
	if len(runs) != 30_000 {
		b.Fatalf("%d runs", len(runs))
	}
}

// BenchmarkLineRestore measures a takeover with ten million waiting.
func BenchmarkLineRestore(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := RestoreLine(Restored{Frontier: 1, Next: benchWaiting, Hold: minute5}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLineAllAbsent measures a call that passes over ten million absent tickets, the highest
// cost of a single Call.
func BenchmarkLineAllAbsent(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		l := NewLine(1)
		for range benchWaiting {
			l.Join(0, time.Second, minute5)
		}
		b.StartTimer()
		if _, ok := l.Call(100 * sec); ok {
			b.Fatal("an absent ticket is called")
		}
	}
}
