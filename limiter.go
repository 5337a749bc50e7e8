package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/limit"
)

// Unit is what the costs of a limit are counted in.
type Unit string

// The units. Bytes of a body are known when it has passed: what it was more than the estimate
// is owed, and the next call waits for it.
const (
	Requests      Unit = "requests"
	CostUnits     Unit = "units"
	RequestBytes  Unit = "request_bytes"
	ResponseBytes Unit = "response_bytes"
)

// A LimitConfig describes one limit: how often each key may do something.
type LimitConfig struct {
	Name string // 1 to 64 of A-Z a-z 0-9 _ - and /; unique
	limit.Rule
	Unit      Unit             // default Requests
	Overrides map[string]int64 // another amount for a key
	Shadow    bool             // counts, refuses nobody, and what it would have refused is no debt

	// MaxKeys is about how many keys are held at once, default DefaultMaxKeys; those beyond
	// share what one may have. A million keys of 32 bytes take some 120 MB, of 1,024 bytes
	// 1.1 GB: whoever chooses the keys chooses their length.
	MaxKeys int
}

// DefaultMaxKeys bounds the keys of a limit. Chosen: some 120 MB of keys of 32 bytes.
const DefaultMaxKeys = 1_000_000

// MaxKey is the greatest length of a key in bytes. Chosen.
const MaxKey = 1024

// An Ask is one limit, whose key, and how much.
type Ask struct {
	Limit string
	Key   string
	Cost  int64 // 0 asks only; below 0 gives back
}

// A Verdict is what an Ask is told.
type Verdict struct {
	limit.Decision
	Limit    *LimitConfig // in force then; not to be changed
	Shadowed bool         // Allowed only because the limit is in shadow mode
}

// The errors of a Limiter.
var (
	ErrNoLimit       = errors.New("there is no such limit")
	ErrKey           = errors.New("impossible key")
	ErrCost          = errors.New("impossible cost")
	ErrNoReservation = errors.New("no such reservation: it was settled, or its time is over")
)

// LimitRules is what the ways to ask need of a Limiter. All methods may be called by many
// goroutines at once and block for one round trip at most.
type LimitRules interface {
	// Allow takes cost units of a key, all or none.
	Allow(ctx context.Context, a Ask) (Verdict, error)
	// AllowAll takes from several limits. all says that either all take or none does; else
	// each is for itself. The verdicts are in the order of asks.
	AllowAll(ctx context.Context, asks []Ask, all bool) ([]Verdict, error)
	// Reserve takes an estimate, to be settled within ttl; afterwards it counts as it is.
	Reserve(ctx context.Context, a Ask, ttl time.Duration) (Verdict, error)
	// Settle says what a reservation came to: 0 gives all of it back.
	Settle(ctx context.Context, a Ask, id uint64) error
}

// KeyUse is what a key has used.
type KeyUse = limit.Use

// A LimiterConfig is what a Limiter begins with.
type LimiterConfig struct {
	Limits []LimitConfig
}

// A Limiter answers whether calls may pass. All methods may be called by many goroutines at
// once. It holds everything in this process and is gone with it.
type Limiter struct {
	seed  maphash.Seed
	began time.Time
	epoch limit.Time // began
	mu    sync.Mutex // one change of the set at a time
	set   atomic.Pointer[map[string]*keyed]
}

// keyed is one limit with its keys, in parts that do not wait for each other.
type keyed struct {
	parts [limitParts]part // first: at the beginning of cache lines
	cfg   atomic.Pointer[definition]
}

// A definition is a limit with its rules, ready to decide. It never changes.
type definition struct {
	LimitConfig
	rules *limit.Rules
}

// limitParts is how many parts the keys of a limit are in (docs/design.md §6).
const limitParts = 256

// part is some of the keys of a limit. What each decision writes lies together, in a cache
// line of its own.
type part struct {
	mu sync.Mutex

	passed, refused, shadowed uint64

	cfg   *definition // that table is under; nil: no key yet
	table limit.Table
	_     [64]byte
}

// NewLimiter makes a Limiter. Its error names all that is wrong.
func NewLimiter(cfg LimiterConfig) (*Limiter, error) {
	l := &Limiter{seed: maphash.MakeSeed(), began: time.Now()}
	l.epoch = limit.Time(l.began.UnixNano())
	l.set.Store(&map[string]*keyed{})
	var all []error
	for _, c := range cfg.Limits {
		if _, twice := (*l.set.Load())[c.Name]; twice {
			all = append(all, fmt.Errorf("limit %q: there are two of that name", c.Name))
			continue
		}
		all = append(all, l.Define(c))
	}
	return l, errors.Join(all...)
}

var limitName = regexp.MustCompile(`^[A-Za-z0-9_/-]{1,64}$`)

// define checks a limit, fills in what is not said, and makes it ready.
func (c LimitConfig) define() (*definition, error) {
	c.Unit, c.MaxKeys = cmp.Or(c.Unit, Requests), cmp.Or(c.MaxKeys, DefaultMaxKeys)
	var all []error
	if !limitName.MatchString(c.Name) {
		all = append(all, errors.New("a name is 1 to 64 of A-Z a-z 0-9 _ - and /"))
	}
	if c.MaxKeys < 1 || c.MaxKeys > 1<<30 {
		all = append(all, fmt.Errorf("%d keys, want 1 to 2^30", c.MaxKeys))
	}
	if !slices.Contains([]Unit{Requests, CostUnits, RequestBytes, ResponseBytes}, c.Unit) {
		all = append(all, fmt.Errorf("unknown unit %q", c.Unit))
	}
	rules, err := limit.Compile(c.Rule, c.Overrides)
	if all = append(all, err); errors.Join(all...) != nil {
		return nil, fmt.Errorf("limit %q: %w", c.Name, errors.Join(all...))
	}
	c.Overrides = maps.Clone(c.Overrides)
	return &definition{c, rules}, nil
}

// Define makes a limit, or changes the one of that name: what its keys have used stays used,
// unless the unit is another.
func (l *Limiter) Define(c LimitConfig) error {
	d, err := c.define()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putLocked(d)
	return nil
}

// Update changes a limit that is there, and no other change comes in between: change is
// handed what is in force, and must not call the Limiter. Its error is returned as it is.
func (l *Limiter) Update(name string, change func(*LimitConfig) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := (*l.set.Load())[name]
	if k == nil {
		return fmt.Errorf("%w: %q", ErrNoLimit, name)
	}
	c := k.cfg.Load().LimitConfig
	c.Overrides = maps.Clone(c.Overrides)
	if err := change(&c); err != nil {
		return err
	}
	c.Name = name
	d, err := c.define()
	if err != nil {
		return err
	}
	l.putLocked(d)
	return nil
}

// putLocked puts a definition into force. What was used in another unit says nothing.
func (l *Limiter) putLocked(d *definition) {
	old := *l.set.Load()
	if k := old[d.Name]; k != nil && k.cfg.Load().Unit == d.Unit {
		k.cfg.Store(d) // each part changes when it is asked next
		return
	}
	next := maps.Clone(old)
	k := &keyed{}
	k.cfg.Store(d)
	next[d.Name] = k
	l.set.Store(&next)
}

// Remove forgets a limit and its keys.
func (l *Limiter) Remove(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := maps.Clone(*l.set.Load())
	if next[name] == nil {
		return fmt.Errorf("%w: %q", ErrNoLimit, name)
	}
	delete(next, name)
	l.set.Store(&next)
	return nil
}

// Limits are all limits, by name.
func (l *Limiter) Limits() (all []*LimitConfig) {
	set := *l.set.Load()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		all = append(all, &set[name].cfg.Load().LimitConfig)
	}
	return all
}

// now is the time by which a limit counts: that of the wall for windows that are aligned to
// it, else one that no clock step moves.
func (l *Limiter) now(c *definition) limit.Time {
	if c.Algorithm == limit.FixedWindow && c.Align != limit.FirstHit {
		return limit.Time(time.Now().UnixNano())
	}
	return l.epoch + limit.Time(time.Since(l.began))
}

// at finds the part of a key, locked, with its table under the rule that is in force.
func (l *Limiter) at(name, key string) (p *part, hash uint64, now limit.Time, err error) {
	k := (*l.set.Load())[name]
	if k == nil {
		return nil, 0, 0, fmt.Errorf("%w: %q", ErrNoLimit, name)
	}
	if len(key) > MaxKey {
		return nil, 0, 0, fmt.Errorf("%w: %d bytes, want %d at most", ErrKey, len(key), MaxKey)
	}
	h := maphash.String(l.seed, key)
	p = &k.parts[h>>56]
	p.mu.Lock()
	c := k.cfg.Load()
	now = l.now(c)
	if p.cfg != c {
		p.define(c, now)
	}
	return p, h, now, nil
}

// define brings a part to the rules that are in force. Holds mu.
func (p *part) define(c *definition, now limit.Time) {
	// Keys fall into parts as by a Poisson law: six of its standard deviations more than
	// the mean, and one, are not reached before the whole is about full.
	mean := float64(c.MaxKeys) / limitParts
	if p.cfg == nil {
		// Random: whoever ends a call of before a restart, or of before the limit was
		// removed and made again, must not end one of now.
		p.table.StartIDs(rand.Uint64() >> 1)
	}
	p.cfg = c
	p.table.SetRules(now, c.rules, int(math.Ceil(mean+6*math.Sqrt(mean)+1)))
}

// count counts a verdict, and lets shadow mode pass it. Holds mu.
func (p *part) count(v *Verdict, counts bool) {
	v.Limit = &p.cfg.LimitConfig
	if p.cfg.Shadow {
		v.Wait = 0
	}
	switch {
	case v.Allowed:
		if counts {
			p.passed++
		}
		return
	case p.cfg.Shadow:
		v.Allowed, v.Shadowed = true, true
		if counts {
			p.shadowed++
		}
	case counts:
		p.refused++
	}
}

// Allow takes a.Cost of a key, all or nothing.
func (l *Limiter) Allow(_ context.Context, a Ask) (v Verdict, err error) {
	p, hash, now, err := l.at(a.Limit, a.Key)
	if err != nil {
		return v, err
	}
	if v.Decision, err = p.table.Take(now, hash, a.Key, a.Cost); err != nil {
		p.mu.Unlock()
		return v, fmt.Errorf("%w: %d", ErrCost, a.Cost)
	}
	p.count(&v, a.Cost > 0)
	p.mu.Unlock()
	return v, nil
}

// Peek tells whether a.Cost would pass, and takes nothing.
func (l *Limiter) Peek(_ context.Context, a Ask) (Verdict, error) {
	return l.look(a, a.Cost)
}

// look tells whether cost would pass in place of that of a, which must be possible.
func (l *Limiter) look(a Ask, cost int64) (v Verdict, err error) {
	p, hash, now, err := l.at(a.Limit, a.Key)
	if err != nil {
		return v, err
	}
	defer p.mu.Unlock()
	if a.Cost > limit.MaxAmount || a.Cost < -limit.MaxAmount ||
		a.Cost < 0 && p.cfg.Algorithm == limit.Concurrency {
		return v, fmt.Errorf("%w: %d", ErrCost, a.Cost)
	}
	v.Decision = p.table.Peek(now, hash, a.Key, max(0, cost))
	p.count(&v, false)
	return v, nil
}

// Explain tells why a call of a key is refused: what its limit is, what it has used, and
// when there is more.
func (l *Limiter) Explain(name, key string) (Verdict, error) {
	return l.Peek(context.Background(), Ask{name, key, 1})
}

// Reserve takes an estimate, to be settled within ttl; afterwards it counts as it is.
func (l *Limiter) Reserve(_ context.Context, a Ask, ttl time.Duration) (v Verdict, err error) {
	p, hash, now, err := l.at(a.Limit, a.Key)
	if err != nil {
		return v, err
	}
	defer p.mu.Unlock()
	if v.Decision, err = p.table.Reserve(now, hash, a.Key, a.Cost, ttl); err != nil {
		return v, fmt.Errorf("%w: %d for %v", ErrCost, a.Cost, ttl)
	}
	p.count(&v, true)
	return v, nil
}

// Settle says what a reservation came to, a.Cost: what it was less is given back, what it
// was more is owed. Of a call under way it is the end. An id of 0, of one that only shadow
// mode let pass, is nothing to settle.
func (l *Limiter) Settle(_ context.Context, a Ask, id uint64) error {
	if id == 0 {
		return nil
	}
	p, hash, now, err := l.at(a.Limit, a.Key)
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	switch err = p.table.Settle(now, hash, id, a.Cost); {
	case errors.Is(err, limit.ErrSettled):
		return ErrNoReservation
	case err != nil:
		return fmt.Errorf("%w: %d", ErrCost, a.Cost)
	}
	return nil
}

// allAtOnce is how long what AllowAll has taken may wait for the rest. Chosen.
const allAtOnce = time.Minute

// AllowAll takes from several limits. all says that either all is taken or nothing: then
// Allowed of a verdict says whether that limit would have let the call pass. It looks at all
// of them first, so that who is refused by one holds up nobody at the others.
func (l *Limiter) AllowAll(ctx context.Context, asks []Ask, all bool) ([]Verdict, error) {
	verdicts := make([]Verdict, len(asks))
	if !all || len(asks) == 1 {
		for i, a := range asks {
			var err error
			if verdicts[i], err = l.Allow(ctx, a); err != nil {
				return verdicts, err
			}
		}
		return verdicts, nil
	}
	if pass, err := l.lookAll(asks, verdicts); err != nil || !pass {
		l.refuse(asks, verdicts)
		return verdicts, err
	}
	for i, a := range asks {
		var err error
		switch v := &verdicts[i]; {
		case a.Cost < 0: // when all else is taken
		case v.Limit.Algorithm == limit.Concurrency || a.Cost == 0:
			*v, err = l.Allow(ctx, a)
		default:
			*v, err = l.Reserve(ctx, a, allAtOnce)
		}
		if err != nil || !verdicts[i].Allowed { // somebody else was faster
			l.undo(asks[:i], verdicts)
			return verdicts, err
		}
	}
	for i, a := range asks {
		if a.Cost < 0 {
			var err error
			if verdicts[i], err = l.Allow(ctx, a); err != nil { // the limit has just changed
				l.undo(asks, verdicts)
				return verdicts, err
			}
		}
	}
	for i, a := range asks {
		if v := &verdicts[i]; a.Cost > 0 && v.Limit.Algorithm != limit.Concurrency {
			l.Settle(ctx, a, v.ID) // to what is taken: no matter if the limit has just gone
			v.ID = 0
		}
	}
	return verdicts, nil
}

// lookAll tells whether all of asks would pass, and takes nothing. Those of one limit and
// key are looked at as one: together they may never pass.
func (l *Limiter) lookAll(asks []Ask, verdicts []Verdict) (pass bool, err error) {
	const tooMuch = limit.MaxAmount + 1
	sums := map[Ask]int64{}
	for _, a := range asks {
		of := Ask{Limit: a.Limit, Key: a.Key}
		sums[of] = min(sums[of]+min(max(0, a.Cost), tooMuch), tooMuch)
	}
	pass = true
	for i, a := range asks {
		cost := int64(0)
		if a.Cost > 0 {
			cost = sums[Ask{Limit: a.Limit, Key: a.Key}]
		}
		if verdicts[i], err = l.look(a, cost); err != nil {
			return false, err
		}
		pass = pass && verdicts[i].Allowed
	}
	return pass, nil
}

// undo gives back what AllowAll has taken of some.
func (l *Limiter) undo(asks []Ask, verdicts []Verdict) {
	for i, a := range asks {
		v := &verdicts[i]
		if v.ID == 0 {
			continue
		}
		if p, hash, now, err := l.at(a.Limit, a.Key); err == nil {
			if p.table.Settle(now, hash, v.ID, 0) == nil {
				p.passed--
				d := p.table.Peek(now, hash, a.Key, 0)
				v.Remaining, v.Reset = d.Remaining, d.Reset
			}
			p.mu.Unlock()
		}
		v.ID, v.Wait = 0, 0
	}
}

// refuse counts what a look at all has refused.
func (l *Limiter) refuse(asks []Ask, verdicts []Verdict) {
	for i, v := range verdicts {
		if v.Limit == nil || v.Allowed {
			continue
		}
		if p, _, _, err := l.at(asks[i].Limit, asks[i].Key); err == nil {
			p.refused++
			p.mu.Unlock()
		}
	}
}

// Reset forgets what a key has used, and its calls under way.
func (l *Limiter) Reset(name, key string) error {
	p, hash, _, err := l.at(name, key)
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	p.table.Reset(hash)
	return nil
}

// Keys are up to count keys that have used any of a limit, from a place on that the call
// before gave; "" is the beginning, and the end. Keys that come and go meanwhile may be
// missed or told twice. A count below 1 is an error.
func (l *Limiter) Keys(name, from string, count int) (all []KeyUse, next string, err error) {
	if count < 1 {
		return nil, "", fmt.Errorf("%w: %d keys at once, want 1 at least", ErrKey, count)
	}
	k := (*l.set.Load())[name]
	if k == nil {
		return nil, "", fmt.Errorf("%w: %q", ErrNoLimit, name)
	}
	first, rest, _ := strings.Cut(cmp.Or(from, "0.0"), ".")
	i, err := strconv.Atoi(first)
	n, err2 := strconv.Atoi(rest)
	if err = cmp.Or(err, err2); err != nil || i < 0 || i >= limitParts || n < 0 {
		return nil, "", fmt.Errorf("%w: no place among the keys: %q", ErrKey, from)
	}
	for ; i < limitParts; i, n = i+1, 0 {
		if len(all) == count {
			return all, fmt.Sprintf("%d.0", i), nil
		}
		p := &k.parts[i]
		p.mu.Lock()
		if p.cfg != nil {
			var some []KeyUse
			some, n = p.table.Uses(l.now(p.cfg), n, count-len(all))
			all = append(all, some...)
		}
		p.mu.Unlock()
		if n > 0 {
			return all, fmt.Sprintf("%d.%d", i, n), nil
		}
	}
	return all, "", nil
}

// LimitTotals count what a limit has decided since the process began.
type LimitTotals struct {
	Passed, Refused, Shadowed uint64
	Keys                      int
}

// Totals tells what a limit has decided.
func (l *Limiter) Totals(name string) (t LimitTotals, err error) {
	k := (*l.set.Load())[name]
	if k == nil {
		return t, fmt.Errorf("%w: %q", ErrNoLimit, name)
	}
	for i := range k.parts {
		p := &k.parts[i]
		p.mu.Lock()
		t.Passed, t.Refused, t.Shadowed = t.Passed+p.passed, t.Refused+p.refused, t.Shadowed+p.shadowed
		t.Keys += p.table.Len()
		p.mu.Unlock()
	}
	return t, nil
}
