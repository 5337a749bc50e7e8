package envoy

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/internal/unary"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// Limits of quota streams. Chosen: visitors may choose the value of a bucket, so Envoy is told to
// forget what is beyond them.
const (
	maxQuotaStreams  = 4096
	maxBuckets       = 4096    // of a stream
	maxAllBuckets    = 100_000 // of all streams
	maxBucketEntries = 16
	maxBucketBytes   = 1024 // of an ID
	maxUsages        = 20_000
	bucketIdle       = 10 * time.Minute // then Envoy is told to forget a bucket
	maxActions       = 1000             // of a message
)

// quotas serves Envoy's RateLimitQuotaService.
type quotas struct {
	service *Service
	lender  Lender

	mu      sync.Mutex
	pools   map[ratelimit.Check]*pool
	streams int
	buckets int
}

// serve serves a stream. The goroutine of the stream reads reports and sends grants; the pools
// decide about them.
func (q *quotas) serve(ctx context.Context, in *unary.Stream) error {
	s, err := q.open()
	if err != nil {
		return err
	}
	defer s.close()
	tick := time.NewTicker(grantEach)
	defer tick.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-in.Ready():
			if err := s.read(in); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		case <-s.changed:
		case <-tick.C:
			all = true
		}
		messages, err := s.messages(all)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := in.Send(m); err != nil {
				return err
			}
		}
	}
}

// open begins a stream.
func (q *quotas) open() (*quotaStream, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.streams >= maxQuotaStreams {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d quota streams", maxQuotaStreams)
	}
	q.streams++
	return &quotaStream{quotas: q, buckets: map[string]*bucket{}, changed: make(chan struct{}, 1)}, nil
}

// A quotaStream is the stream of one Envoy. Only its goroutine uses it.
type quotaStream struct {
	quotas  *quotas
	domain  string
	rules   *Rules
	buckets map[string]*bucket
	forget  []*rlqs.BucketId // that Envoy is to forget
	changed chan struct{}    // a grant is to be sent
}

// A bucket is a group of requests of one Envoy.
type bucket struct {
	id    *rlqs.BucketId
	found ratelimit.Check // by the rules
	check ratelimit.Check // in force: none if the limit is in shadow mode
	lease *lease          // nil: not limited
	sent  time.Time       // without a lease
	asked time.Time       // when Envoy last reported a request
}

func (s *quotaStream) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// close ends the stream.
func (s *quotaStream) close() {
	for _, b := range s.buckets {
		b.leave()
	}
	q := s.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	q.streams--
	q.buckets -= len(s.buckets)
}

func (b *bucket) leave() {
	if b.lease != nil {
		b.lease.end()
	}
}

// read handles the reports that have arrived.
func (s *quotaStream) read(in *unary.Stream) error {
	for {
		msg, err := in.Next()
		if err != nil || msg == nil {
			return err
		}
		if err := s.receive(msg); err != nil {
			return err
		}
	}
}

// Repeated fields of envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports.
const usagesField = 2

// receive handles one message.
func (s *quotaStream) receive(msg []byte) error {
	usages := 0
	for range each(msg, usagesField) {
		if usages++; usages > maxUsages {
			return invalid("more than %d reports in a message", maxUsages)
		}
	}
	reports := &rlqs.RateLimitQuotaUsageReports{}
	if err := proto.Unmarshal(msg, reports); err != nil {
		return status.Errorf(codes.InvalidArgument, "the message cannot be read: %v", err)
	}
	switch domain := reports.GetDomain(); {
	case s.domain == "" && domain == "":
		return invalid("the first message must name the domain")
	case s.domain == "":
		s.domain = domain
		if err := s.follow(); err != nil {
			return err
		}
	case domain != "" && domain != s.domain:
		return invalid("the domain was %q and cannot become %q: use another stream", s.domain, domain)
	}
	for _, u := range reports.GetBucketQuotaUsages() {
		if err := s.report(u); err != nil {
			return err
		}
	}
	return nil
}

// report handles the report of one bucket. Only the numbers of requests count: by the time between
// reports, whatever time_elapsed is.
func (s *quotaStream) report(u *rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage) error {
	id := u.GetBucketId()
	if len(id.GetBucket()) == 0 {
		return invalid("a report has no bucket_id")
	}
	entries, size := entriesOf(id)
	if len(entries) > maxBucketEntries || size > maxBucketBytes {
		s.abandon(id)
		return nil
	}
	var name []byte
	for _, e := range entries {
		name = appendEntry(name, e.GetKey(), e.GetValue())
	}
	b := s.buckets[string(name)]
	if b == nil {
		if b = s.quotas.place(s); b == nil {
			s.abandon(id)
			return nil
		}
		b.id = id
		s.buckets[string(name)] = b
		if err := s.assign(b); err != nil {
			return err
		}
	}
	calls := int64(min(u.GetNumRequestsAllowed(), limit.MaxAmount) +
		min(u.GetNumRequestsDenied(), limit.MaxAmount))
	if calls > 0 {
		b.asked = time.Now()
	}
	if b.lease != nil {
		b.lease.report(calls)
	}
	return nil
}

// abandon lets Envoy forget a bucket.
func (s *quotaStream) abandon(id *rlqs.BucketId) {
	if len(s.forget) < maxUsages {
		s.forget = append(s.forget, id)
	}
}

// entriesOf returns the entries of a bucket in the order of their keys, and their size.
func entriesOf(id *rlqs.BucketId) (all []*common.RateLimitDescriptor_Entry, size int) {
	for key, value := range id.GetBucket() {
		all = append(all, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		size += len(key) + len(value)
	}
	slices.SortFunc(all, func(a, b *common.RateLimitDescriptor_Entry) int {
		return strings.Compare(a.GetKey(), b.GetKey())
	})
	return all, size
}

// place returns a new bucket of a stream, or nil if there are too many.
func (q *quotas) place(s *quotaStream) *bucket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(s.buckets) >= maxBuckets || q.buckets >= maxAllBuckets {
		return nil
	}
	q.buckets++
	return &bucket{asked: time.Now()}
}

// follow lets the stream follow the rules in force.
func (s *quotaStream) follow() error {
	rules := s.quotas.service.rules.Load()
	if s.domain == "" || rules == s.rules {
		return nil
	}
	if s.rules = rules; rules.domains[s.domain] == nil {
		return status.Errorf(codes.NotFound, "there is no domain %q in envoy.rules", s.domain)
	}
	for _, b := range s.buckets {
		if err := s.assign(b); err != nil {
			return err
		}
	}
	return nil
}

// assign finds the limit of a bucket.
func (s *quotaStream) assign(b *bucket) error {
	entries, _ := entriesOf(b.id)
	r, key := s.rules.domains[s.domain].findUnordered(entries)
	b.found = ratelimit.Check{}
	if r != nil && !r.unlimited {
		b.found = ratelimit.Check{Limit: r.limit, Key: shorten(key)}
	}
	return s.apply(b)
}

// apply puts the limit of a bucket into force as it is now.
func (s *quotaStream) apply(b *bucket) error {
	check := b.found
	if check != (ratelimit.Check{}) {
		l, err := s.quotas.lender.Limit(check.Limit)
		switch {
		case err != nil:
			return failure(err)
		case l.Algorithm.HasBurst() || l.Algorithm == limit.Concurrency:
			return status.Errorf(codes.FailedPrecondition, "the limit %s is a %v, whose amount cannot be lent for "+
				"longer than a call; use fixed_window, sliding_window or sliding_log", l.Name, l.Algorithm)
		case !l.Refuses():
			check = ratelimit.Check{}
		}
	}
	if b.check == check {
		return nil
	}
	b.leave()
	b.check, b.lease, b.sent = check, nil, time.Time{}
	if check != (ratelimit.Check{}) {
		b.lease = s.quotas.lease(s, check)
	}
	return nil
}

// findUnordered finds the rule of entries that have no order: at each level it takes the first entry
// that has a rule.
func (d *domain) findUnordered(entries []*common.RateLimitDescriptor_Entry) (r *rule, key []byte) {
	at := &d.top
	for len(entries) > 0 {
		i := slices.IndexFunc(entries, func(e *common.RateLimitDescriptor_Entry) bool {
			next, _ := at.step(e, nil)
			return next != nil
		})
		if i < 0 {
			return nil, nil
		}
		var value string
		at, value = at.step(entries[i], nil)
		key = appendEntry(key, entries[i].GetKey(), value)
		entries = slices.Delete(entries, i, i+1)
	}
	return at.rule, key
}

// lease returns a new lease of a stream.
func (q *quotas) lease(s *quotaStream, check ratelimit.Check) *lease {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.pools[check]
	if p == nil {
		p = &pool{lender: q.lender, ask: check}
		p.empty = func() { q.drop(p) }
		if q.pools == nil {
			q.pools = map[ratelimit.Check]*pool{}
		}
		q.pools[check] = p
	}
	l := &lease{pool: p, stream: s, since: time.Now(), demand: -1}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leases = append(p.leases, l)
	p.wake(0)
	return l
}

// drop removes a pool without leases.
func (q *quotas) drop(p *pool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.leases) == 0 && q.pools[p.ask] == p {
		delete(q.pools, p.ask)
	}
}

// messages returns what is to be sent: all grants, or only new ones.
func (s *quotaStream) messages(all bool) (messages [][]byte, err error) {
	if err := s.follow(); err != nil {
		return nil, err
	}
	var actions []*rlqs.RateLimitQuotaResponse_BucketAction
	for _, id := range s.forget {
		actions = append(actions, forgets(id))
	}
	s.forget = nil
	now := time.Now()
	for name, b := range s.buckets {
		if all { // a limit can change without the rules
			if err := s.apply(b); err != nil {
				return nil, err
			}
		}
		strategy := blanket(types.RateLimitStrategy_ALLOW_ALL)
		switch {
		case now.Sub(b.asked) > bucketIdle:
			b.leave()
			delete(s.buckets, name)
			s.quotas.mu.Lock()
			s.quotas.buckets--
			s.quotas.mu.Unlock()
			actions = append(actions, forgets(b.id))
			continue
		case b.lease != nil:
			g := b.lease.renewed(!all)
			if g == nil {
				continue
			}
			strategy = g.strategy()
		case !all && !b.sent.IsZero():
			continue
		}
		b.sent = now
		actions = append(actions, &rlqs.RateLimitQuotaResponse_BucketAction{BucketId: b.id,
			BucketAction: &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
				QuotaAssignmentAction: &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
					AssignmentTimeToLive: durationpb.New(grantTTL), RateLimitStrategy: strategy}}})
	}
	for part := range slices.Chunk(actions, maxActions) {
		m, err := proto.Marshal(&rlqs.RateLimitQuotaResponse{BucketAction: part})
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func forgets(id *rlqs.BucketId) *rlqs.RateLimitQuotaResponse_BucketAction {
	return &rlqs.RateLimitQuotaResponse_BucketAction{BucketId: id,
		BucketAction: &rlqs.RateLimitQuotaResponse_BucketAction_AbandonAction_{
			AbandonAction: &rlqs.RateLimitQuotaResponse_BucketAction_AbandonAction{}}}
}
