package sessions

import (
	"slices"
	"sync"
	"time"
)

// Lease is for how long others may let in visitors by their signed passes, without a question. The
// slot of a session that ends early is held for as long. Chosen: two batches of a connector.
const Lease = 2 * time.Second

// Bounds of what is kept of early ends. Chosen: a connector hears of an end within two leases, and a
// node may learn of it 6 s later than another. 10,000 ends are a thousand in a second.
const (
	keepEnds = 10 * time.Second
	mostEnds = 10_000
)

// Leases are those of a room's sessions, given by this process. They may be used by many goroutines
// at once.
type Leases struct {
	boot   func() time.Duration
	cutOff func() bool // whether this process may not learn of ends

	mu    sync.Mutex
	begun bool
	until time.Duration // the last lease
	since time.Duration // all early ends after that are in ends, unless they are too old
	ends  []earlyEnd
}

type earlyEnd struct {
	session string
	at      time.Duration
}

// NewLeases returns the leases of a room that has given none. While cutOff says that this process may
// not learn of ends, it gives none.
func NewLeases(boot func() time.Duration, cutOff func() bool) *Leases {
	return &Leases{boot: boot, cutOff: cutOff, since: boot()}
}

// Begin gives a lease, if ok.
func (l *Leases) Begin() (ok bool) {
	cutOff := l.cutOff() // without the lock: ends are noted under locks that it takes
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.until = true, l.boot()+Lease
	return !cutOff
}

// Renew gives a lease to those who forget the ended sessions. In a room with signed passes any process
// may have given the lease that it renews, also one with another file: signed says that this is such a
// room. If ok is false, other sessions may have ended too, and there is no lease.
func (l *Leases) Renew(signed bool) (ended []string, ok bool) {
	cutOff := l.cutOff()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.prune()
	if l.begun = l.begun || signed; l.begun {
		if now-l.since < keepEnds || cutOff {
			return nil, false
		}
		l.until = now + Lease
	}
	for i := range l.ends {
		ended = append(ended, l.ends[i].session)
	}
	return ended, true
}

// End notes that a session has ended early. This must happen before AreHeld is called about it.
func (l *Leases) End(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.prune()
	if len(l.ends) >= mostEnds {
		l.since, l.ends = l.ends[0].at, l.ends[1:]
	}
	l.ends = append(l.ends, earlyEnd{session, now})
}

// AreHeld reports whether a lease of this process is not over.
func (l *Leases) AreHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun && l.boot() <= l.until
}

func (l *Leases) prune() (now time.Duration) {
	now = l.boot()
	old := slices.IndexFunc(l.ends, func(e earlyEnd) bool { return now-e.at <= keepEnds })
	if old < 0 {
		old = len(l.ends)
	}
	l.ends = l.ends[old:]
	return now
}
