package server

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/holders"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/status"
)

// collector reads the rooms at each scrape: requests pay nothing for metrics beyond the counters
// that they update anyway.
type collector struct {
	s    *Server
	ends time.Time // expiry of the cluster's certificate, zero without one
}

// Describe sends nothing: the rooms are known only at a scrape.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// A scrape takes the metrics of one scrape. All that it takes have its labels.
type scrape struct {
	to            chan<- prometheus.Metric
	names, values []string
}

// with returns the scrape with further labels: name, value, name, value.
func (s scrape) with(labels ...string) scrape {
	for pair := range slices.Chunk(labels, 2) {
		s.names, s.values = append(slices.Clip(s.names), pair[0]), append(slices.Clip(s.values), pair[1])
	}
	return s
}

func (s scrape) describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, s.names, nil)
}

func (s scrape) put(kind prometheus.ValueType, name, help string, v float64) {
	s.to <- prometheus.MustNewConstMetric(s.describe(name, help), kind, v, s.values...)
}

// number is what a metric can be.
type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

func gauge[N number](s scrape, name, help string, v N) {
	s.put(prometheus.GaugeValue, name, help, float64(v))
}

// known is gauge for a value that is not known while it is negative.
func known[N number](s scrape, name, help string, v N) {
	if v >= 0 {
		gauge(s, name, help, v)
	}
}

func total[N number](s scrape, name, help string, v N) {
	s.put(prometheus.CounterValue, name, help, float64(v))
}

func (s scrape) truth(name, help string, yes bool) {
	v := 0
	if yes {
		v = 1
	}
	gauge(s, name, help, v)
}

func (s scrape) summary(name, help string, n int64, seconds float64) {
	s.to <- prometheus.MustNewConstSummary(s.describe(name, help), uint64(n), seconds, nil, s.values...)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	m := scrape{to: ch}
	c.tls(m)
	c.process(m)
	c.node(m)
	c.limits(m)
	c.holders(m)
	c.queues(m)
	c.traces(m)
	c.webhooks(m)
	for _, g := range c.s.set.Load().gates {
		st := g.room.Status()
		m := m.with("room", st.Name)
		c.room(m, g, &st)
		c.auto(m, st.Auto)
		c.rules(m, &st.Totals)
		c.lanes(m, &st)
		c.challenges(m, st.Challenges)
		c.codes(m, g)
		c.counted(m, &st)
		c.record(m, &st)
		c.datacenters(m, st.Datacenters)
	}
}

// room collects the figures of a room's visitors.
func (c *collector) room(m scrape, g *gate, st *status.Room) {
	t := &st.Totals
	gauge(m, "headgate_active_users", "Visitors inside.", st.ActiveUsers)
	gauge(m, "headgate_waiting_users", "Visitors in the line.", st.WaitingUsers)
	gauge(m, "headgate_called_users", "Tickets called and not yet in.", st.Called)
	gauge(m, "headgate_provisional_tickets", "Tickets that are not confirmed yet, at the host.", st.Provisional)
	gauge(m, "headgate_total_active_users_limit", "Limit of visitors at once.", st.TotalActiveUsers)
	gauge(m, "headgate_new_users_per_minute_limit", "Limit of new visitors in any minute.",
		st.NewUsersPerMinute)
	gauge(m, "headgate_new_users_last_minute", "New visitors within the last minute.", st.NewUsersLastMinute)
	m.truth("headgate_origin_up", "1 if the origin answers.", st.OriginUp)
	total(m, "headgate_admitted_total", "Visitors let in.", t.Admitted)
	total(m, "headgate_joined_total", "Tickets issued.", t.Joined)
	total(m, "headgate_called_total", "Calls of tickets.", t.Called)
	total(m, "headgate_claimed_total", "Calls that were claimed.", t.Claimed)
	total(m, "headgate_calls_lapsed_total", "Calls that nobody claimed.", t.CallsLapsed)
	m.summary("headgate_call_empty_seconds", "How long claimed slots stood called and empty.",
		t.Claimed, t.CallEmptySeconds)
	m.summary("headgate_newcomers_asked_seconds",
		"Newcomers whom this process had to ask the room's counter for, and how long that took.",
		t.CounterRequests, t.CounterRequestSeconds)
	total(m, "headgate_waiting_answers_total", "Answers to visitors who wait.", t.WaitingAnswers)
	total(m, "headgate_revoked_total", "Stays ended by the origin.", t.Revoked)
	total(m, "headgate_completed_total", "Visits that a backend has completed here.",
		g.ended.completed.Load())
	total(m, "headgate_abandoned_total", "Visits that a backend has abandoned here.",
		g.ended.abandoned.Load())
	total(m, "headgate_excluded_total", "Requests that pass uncounted.", t.Excluded)
	total(m, "headgate_forged_cookies_total", "Cookies this room did not seal.", t.Forged)
	total(m, "headgate_refused_full_total", "Visitors told that the line is full.", t.Full)
	total(m, "headgate_refused_join_limit_total", "Joins refused because of their address.", t.Limited)
	total(m, "headgate_passes_shared_total",
		"Visits whose pass was used in more networks than pass_sharing allows.", t.PassesShared)
	total(m, "headgate_refused_pass_sharing_total",
		"Requests with a pass that came from one network too many.", t.PassesRefused)
	total(m, "headgate_refused_excluded_total",
		"Excluded requests refused because too many were in flight.", t.InFlightRejected)
	total(m, "headgate_released_total", "Tickets that operators have released from their lane.", t.Released)
	total(m, "headgate_given_up_total", "Places that visitors have given up.", t.LeftLine)
	total(m, "headgate_shadow_held_total", "Visitors shadow mode would have held.", t.Shadowed)
}

// auto collects what was found about the limits of a room.
func (c *collector) auto(m scrape, a *status.Auto) {
	if a == nil {
		return
	}
	known(m, "headgate_found_total_active_users", "Limit of visitors at once that was found.", a.Active)
	known(m, "headgate_found_new_users_per_minute", "Limit of new visitors in any minute that was found.",
		a.New)
	known(m, "headgate_origin_knee_requests_per_second",
		"Requests that the origin answers within its target.", a.Knee)
	known(m, "headgate_origin_p95_of_target",
		"95th percentile of the origin's latency, as a share of its target.", a.P95)
	known(m, "headgate_origin_load", "Load of the origin as it was reported; 1 is full.", a.Load)
	known(m, "headgate_signal_senders", "Nodes or data centers whose signals of the origin arrive.", a.Senders)
	gauge(m.with("mode", a.Mode, "signal", a.Signal, "reason", adaptive.Label(a.Reason)),
		"headgate_limit_decision", "Why the limits are as they are; always 1.", 1)
}

// process collects the metrics of the process itself.
func (c *collector) process(m scrape) {
	read, b := c.s.read.Load(), readBuild()
	m.truth("headgate_config_last_reload_successful",
		"1 if the configuration was good when it was read last.", read.err == nil)
	gauge(m, "headgate_config_last_reload_success_timestamp_seconds",
		"When a good configuration was read last.", float64(read.good.UnixMilli())/1000)
	for to, n := range c.s.node.Rooms.MessagesSent() {
		total(m.with("to", to), "headgate_datacenter_messages_total", "Messages sent to another data center.", n)
	}
	gauge(m.with("version", b.version, "revision", b.revision, "go_version", b.golang),
		"headgate_build_info", "Which headgate this is; always 1.", 1)
}

// datacenters collects the metrics of the other data centers.
func (c *collector) datacenters(m scrape, d *status.Datacenters) {
	if d == nil {
		return
	}
	gauge(m, "headgate_anywhere_free_slots", "Slots of users at once that no data center holds.",
		d.Anywhere.Free)
	gauge(m, "headgate_anywhere_presumed_slots", "Slots lent to data centers that nobody hears.",
		d.Anywhere.Presumed)
	gauge(m, "headgate_anywhere_lent_slots", "Slots of users at once lent to all data centers.",
		d.Anywhere.Lent)
	gauge(m, "headgate_anywhere_bound_slots",
		"How many may be lent: the limit, or that of before until enough have come back.", d.Anywhere.Bound)
	gauge(m, "headgate_order_uncertainty_seconds",
		"How well the data centers know in which order people came.", d.Uncertainty)
	for i := range d.Datacenters {
		s := &d.Datacenters[i]
		m := m.with("datacenter", s.Name)
		gauge(m, "headgate_datacenter_age_seconds",
			"How old what is known of a data center is, -1 if nothing is.", s.Age)
		gauge(m, "headgate_datacenter_held_slots", "Slots of users at once lent to a data center.", s.Held)
		gauge(m, "headgate_datacenter_active_users", "Visitors inside by a data center.", s.Active)
		gauge(m, "headgate_datacenter_waiting_users", "Visitors in the line of a data center.", s.Waiting)
	}
}

// record collects the metrics of the storage of a room's record.
func (c *collector) record(m scrape, st *status.Room) {
	total(m, "headgate_record_writes_total", "Writes of the counter's record.", st.Totals.Writes)
	m.summary("headgate_record_write_seconds", "How long writes of the counter's record took, synced.",
		st.Totals.Writes, st.Totals.WriteSeconds)
	gauge(m, "headgate_record_age_seconds", "Since the newest confirmed write was built.", st.Record.Age)
	gauge(m, "headgate_record_refused_seconds", "The disk refuses writes for so long, 0 it does not.",
		st.Record.WriteFailing)
	gauge(m, "headgate_record_quiet_seconds",
		"Nobody new is let in for so long: the record was older than what was told.", st.Record.Quiet)
	m.truth("headgate_record_damaged", "1 if the record cannot be read.", st.Record.Damaged != "")
}

// counted collects which process hosts the counter of a room, how old its figures are, and what
// bounds the room.
func (c *collector) counted(m scrape, st *status.Room) {
	m.with("datacenter", c.s.node.About.Datacenter).truth("headgate_room_hosted",
		"1 if this process counts the room, of all of its data center.", st.Hosted)
	gauge(m, "headgate_room_state_age_seconds",
		"Since who counts the room has told this process of it, -1 never.", st.Record.LastHeard)
	gauge(m, "headgate_active_users_bound",
		"What bounds visitors inside now: the limit, or that of before until enough have left.", st.Bound.Active)
	gauge(m, "headgate_new_users_bound",
		"What bounds new visitors within a minute now, as headgate_active_users_bound.", st.Bound.New)
	wait := st.MaxWaitSeconds
	if st.WaitingUsers == 0 && st.Status == "not_queueing" {
		wait = 0
	}
	gauge(m, "headgate_estimated_wait_seconds",
		"How long the last in the line is expected to wait, -1 nobody knows.", wait)
}

// node collects the metrics of the machine and of the other members of the cluster.
func (c *collector) node(m scrape) {
	if free, size, err := platform.Space(c.s.cfg.Data); err == nil {
		gauge(m, "headgate_data_free_bytes", "What headgate may still write to the disk of its data folder.",
			free)
		gauge(m, "headgate_data_size_bytes", "Size of that disk.", size)
	}
	total(m, "headgate_refused_connections_total",
		"Connections closed because their address had too many.", c.s.conns.Refused())
	if !c.ends.IsZero() {
		gauge(m, "headgate_cluster_certificate_expires_timestamp_seconds",
			"When this node's certificate in the cluster expires.", c.ends.Unix())
	}
	nodes := c.s.node.Rooms.Nodes()
	if nodes == nil {
		return
	}
	self, ahead, alive := c.s.node.Config.Node, []float64{}, 0
	for i := range nodes {
		if n := &nodes[i]; n.Alive {
			alive++
			if n.Name != self {
				ahead = append(ahead, n.Skew)
			}
		}
	}
	gauge(m, "headgate_cluster_nodes", "Processes of the data center that this one hears, itself included.",
		alive)
	gauge(m, "headgate_clock_offset_seconds", "How far the wall clock here is ahead of those of the others.",
		offset(ahead))
}

// queues collects the metrics of the queues that this process hosts, so that each queue is reported
// by one process.
func (c *collector) queues(m scrape) {
	ctx, stop := context.WithTimeout(context.Background(), collectWait)
	defer stop()
	for _, q := range c.s.jobs.all() {
		if !q.Hosted() {
			continue
		}
		st, err := q.Status(ctx)
		if err != nil { // handed over in the meantime
			continue
		}
		m, t := m.with("queue", st.Name), &st.Totals
		gauge(m, "headgate_queue_rate", "Jobs a second at most, beside the limits; 0 is no bound.", st.Rate)
		gauge(m, "headgate_queue_jobs", "Jobs that are not done with and not dead.", st.Depth)
		gauge(m, "headgate_queue_later_jobs", "Of them, those that go at a time.", st.Later)
		gauge(m, "headgate_queue_dead_jobs", "Jobs that nobody tries any more.", st.Dead)
		gauge(m, "headgate_queue_in_flight", "Deliveries under way.", st.InFlight)
		gauge(m, "headgate_queue_oldest_seconds", "Since the oldest job was put.", st.OldestAge)
		gauge(m, "headgate_queue_empty_in_seconds", "Until the queue is empty at this pace, -1 never.",
			st.EmptyIn)
		m.truth("headgate_queue_paused", "1 if nothing is to go out.", st.Paused)
		m.truth("headgate_queue_failing", "1 if all tries fail, ten or more in a row.", st.Failing != nil)
		gauge(m, "headgate_queue_paused_tenants", "Tenants whose jobs wait.", len(st.PausedTenants))
		gauge(m, "headgate_queue_bytes", "Bytes kept on the disk.", st.Bytes)
		gauge(m, "headgate_queue_keys", "Idempotency keys known.", st.Keys)
		total(m, "headgate_queue_put_total", "Jobs put.", t.Put)
		total(m, "headgate_queue_duplicates_total", "Jobs let go because their key was known.", t.Duplicates)
		total(m, "headgate_queue_delivered_total", "Jobs delivered.", t.Delivered)
		total(m, "headgate_queue_retried_total", "Deliveries that failed and are tried again.", t.Retried)
		total(m, "headgate_queue_busy_total", "Deliveries that an overrun target has refused.", t.Busy)
		total(m, "headgate_queue_died_total", "Jobs that died.", t.Dead)
		total(m, "headgate_queue_firings_total", "Times of schedules that have a job.", t.Fired)
		total(m, "headgate_queue_missed_firings_total", "Times of schedules that have none.", t.Missed)
		gauge(m, "headgate_queue_completions_waiting", "Jobs that have ended, and whose completion is not in its "+
			"queue yet.", st.Ended)
		total(m, "headgate_queue_completions_total", "Completions put into their queue.", t.Ended)
		total(m, "headgate_queue_completions_lost_total", "Completions given up because too many waited.", t.EndsLost)
		total(m, "headgate_queue_write_failures_total", "Outcomes that the engine did not take at once.",
			t.NotesFailed)
		m.summary("headgate_queue_delivery_seconds", "How long deliveries took.",
			t.Delivered+t.Retried+t.Busy+t.Dead, t.DeliverySeconds)
	}
}

// limits collects what each limit has decided, and what this process counts for others.
func (c *collector) limits(m scrape) {
	hosted, standby := c.s.node.Rooms.LimitShards()
	const shards = "Shards of the keys of shared limits that this node hosts, or stands by for."
	gauge(m.with("role", "host"), "headgate_limit_shards", shards, hosted)
	gauge(m.with("role", "standby"), "headgate_limit_shards", shards, standby)
	for _, cfg := range c.s.limits.Rules.Limits() {
		t, err := c.s.limits.Rules.Totals(cfg.Name)
		if err != nil { // removed in the meantime
			continue
		}
		m := m.with("limit", cfg.Name)
		total(m, "headgate_limit_passed_total", "Calls that a limit let pass.", t.Passed)
		total(m, "headgate_limit_refused_total", "Calls that a limit refused.", t.Refused)
		total(m, "headgate_limit_exceeded_total", "Calls beyond a limit that is soft or in shadow mode.", t.Exceeded)
		total(m, "headgate_limit_unreachable_total",
			"Calls decided while the host of their key was out of reach.", t.Unreachable)
		gauge(m, "headgate_limit_keys", "Keys that a limit holds in this process.", t.Keys)
		c.amount(m, cfg)
	}
}

// holders collects whose calls came with which keys.
func (c *collector) holders(m scrape) {
	if !c.s.holders.IsOpen() {
		return
	}
	gauge(m, "headgate_holders", "Holders of keys that this process knows, with the revoked ones.", c.s.holders.Len())
	c.s.limits.keyCounts.Each(func(o holders.Outcome, n uint64) {
		total(m.with("key", o.String()), "headgate_holder_calls_total", "Calls by what their key was.", n)
	})
}

// amount collects what this process has found about the amount of a limit.
func (c *collector) amount(m scrape, cfg *ratelimit.Limit) {
	a := c.s.limits.FoundHere(cfg.Name)
	if a == nil {
		return
	}
	known(m, "headgate_found_amount", "Amount of a limit that was found.", a.Amount)
	known(m, "headgate_limit_in_use", "Calls that hold a slot of a limit, on average.", a.InUse)
	known(m, "headgate_limit_knee_requests_per_second", "Calls that the origin answers within its target.",
		a.Knee)
	known(m, "headgate_limit_p95_of_target",
		"95th percentile of the latency of calls, as a share of its target.", a.P95)
	known(m, "headgate_limit_signal_senders", "Processes whose signals of the calls arrive.", a.Senders)
	gauge(m.with("mode", cfg.Auto.Mode, "signal", a.Signal, "reason", adaptive.Label(a.Reason)),
		"headgate_amount_decision", "Why the amount is as it is; always 1.", 1)
}

// rules collects the decisions of the rules of a room.
func (c *collector) rules(m scrape, t *status.Totals) {
	for action, n := range map[string]int64{
		"bypass": t.Bypassed, "crawler": t.Crawlers, "deny": t.Denied, "lane": t.SentToLane,
		"challenge": t.Challenged,
	} {
		total(m.with("action", action), "headgate_rules_total", "Requests that rules have decided on.", n)
	}
}

// lanes collects the metrics of the lanes of a room.
func (c *collector) lanes(m scrape, st *status.Room) {
	for _, x := range st.Lanes {
		m := m.with("lane", x.Name)
		gauge(m, "headgate_lane_waiting", "Visitors in a lane, those called included.", x.Waiting)
		total(m, "headgate_lane_calls_total", "Calls of a lane since the host took over.", x.Calls)
	}
}

// challenges collects the solutions in a room that asks for them.
func (c *collector) challenges(m scrape, x *status.Challenges) {
	if x == nil {
		return
	}
	total(m, "headgate_challenges_issued_total", "Tickets with something to solve.", x.Issued)
	total(m, "headgate_challenges_solved_total", "Solutions that were right.", x.Solved)
	for reason, n := range x.Refused {
		total(m.with("reason", reason), "headgate_challenges_refused_total",
			"Solutions that were refused, and why.", n)
	}
}

// codes collects the invitations of a room that takes them.
func (c *collector) codes(m scrape, g *gate) {
	if g.look.codes == nil {
		return
	}
	for i, word := range invite.Words() {
		total(m.with("result", word), "headgate_invitations_total",
			"Invitations that came in links and by the form.", g.codes[i].Load())
	}
}

// traces collects what happened to recorded traces. Without tracing it sends nothing.
func (c *collector) traces(m scrape) {
	n, on := c.s.traces.Totals()
	if !on {
		return
	}
	total(m, "headgate_traces_sent_total", "Spans that the collector has taken.", n.Sent)
	for why, n := range map[string]uint64{"full": n.Full, "refused": n.Refused, "ended": n.Ended} {
		total(m.with("why", why), "headgate_traces_dropped_total", "Spans that were dropped, and why.", n)
	}
}

// webhooks collects the metrics of the webhooks: what this process has sent, and what waits in the
// queues that it hosts.
func (c *collector) webhooks(m scrape) {
	ctx, stop := context.WithTimeout(context.Background(), collectWait)
	defer stop()
	for _, w := range c.s.hooks.all() {
		m := m.with("webhook", w.file.Name)
		total(m, "headgate_webhook_sent_total", "Messages that the receiver has taken.", w.post.sent.Load())
		total(m, "headgate_webhook_failed_total", "Attempts to send that have failed.", w.post.failed.Load())
		total(m, "headgate_webhook_dropped_total", "Messages given up.", w.post.dropped.Load())
		if !w.Hosted() {
			continue
		}
		if st, err := w.Status(ctx); err == nil {
			gauge(m, "headgate_webhook_waiting_messages", "Messages not yet taken.", st.Depth)
			gauge(m, "headgate_webhook_oldest_seconds", "Since the oldest of them was put.", st.OldestAge)
		}
		if st, err := w.post.state(ctx); err == nil {
			m.truth("headgate_webhook_off", "1 if the receiver has answered 410 Gone.", st.off(w.file.URL))
		}
	}
}

// tls collects the metrics of the certificates.
func (c *collector) tls(m scrape) {
	if c.s.https == nil {
		return
	}
	states, good := c.s.https.keeper.States()
	for _, st := range states {
		at := int64(0)
		if !st.NotAfter.IsZero() {
			at = st.NotAfter.Unix()
		}
		gauge(m.with("name", st.Name), "headgate_tls_certificate_expires_timestamp_seconds",
			"When the certificate expires; 0 while there is none.", at)
	}
	m.truth("headgate_tls_reload_successful", "1 if the last look for a newer certificate was good.", good)
}

// mostScrapes bounds how many scrapes may be in progress; further ones are answered with 503. If a
// disk does not answer (see disk), scrapes do not pile up. Chosen: two Prometheus servers and some
// manual ones.
const mostScrapes = 16

// clashing is a counter whose OpenMetrics name, go_memstats_alloc_bytes, is also the name of a
// gauge. A strict reader rejects the whole answer because of that. go_gc_heap_allocs_bytes_total is
// the same number.
const clashing = "go_memstats_alloc_bytes_total"

// without wraps gather and leaves out the metric with the given name. The option of the library
// would leave out all of go_memstats_…, which the usual dashboards of Go programs show.
func without[F interface{ GetName() string }](gather func() ([]F, error), name string) func() ([]F, error) {
	return func() ([]F, error) {
		all, err := gather()
		return slices.DeleteFunc(all, func(f F) bool { return f.GetName() == name }), err
	}
}

// offset returns how far this clock is ahead of the median of all clocks; ahead holds how far each
// other clock is ahead of this one. With three or more clocks the median counts as correct. With
// two neither can be proved correct, so each reports the full difference.
func offset(ahead []float64) float64 {
	switch len(ahead) {
	case 0:
		return 0
	case 1:
		return 0 - ahead[0]
	}
	all := append(slices.Clone(ahead), 0)
	slices.Sort(all)
	n := len(all)
	return 0 - (all[(n-1)/2]+all[n/2])/2
}

// clusterEnds returns when this node's cluster certificate expires. The certificate is read at the
// start.
func (s *Server) clusterEnds() time.Time {
	if s.cfg.Cluster == nil {
		return time.Time{}
	}
	return s.cfg.Cluster.Ends()
}
