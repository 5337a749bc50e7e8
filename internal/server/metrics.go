package server

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/adaptive"
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

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.s.collectTLS(ch)
	c.process(ch)
	c.node(ch)
	c.limits(ch)
	c.queues(ch)
	c.traces(ch)
	c.webhooks(ch)
	for _, g := range c.s.set.Load().gates {
		st := g.room.Status()
		send := func(kind prometheus.ValueType, name, help string, v float64) {
			d := prometheus.NewDesc(name, help, []string{"room"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, st.Name)
		}
		gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
		t := &st.Totals
		up := 0.0
		if st.OriginUp {
			up = 1
		}
		send(gauge, "headgate_active_users", "Visitors inside.", float64(st.ActiveUsers))
		send(gauge, "headgate_waiting_users", "Visitors in the line.", float64(st.WaitingUsers))
		send(gauge, "headgate_called_users", "Tickets called and not yet in.", float64(st.Called))
		send(gauge, "headgate_provisional_tickets", "Tickets that are not confirmed yet, at the host.",
			float64(st.Provisional))
		send(gauge, "headgate_total_active_users_limit", "Limit of visitors at once.",
			float64(st.TotalActiveUsers))
		send(gauge, "headgate_new_users_per_minute_limit", "Limit of new visitors in any minute.",
			float64(st.NewUsersPerMinute))
		send(gauge, "headgate_new_users_last_minute", "New visitors within the last minute.",
			float64(st.NewUsersLastMinute))
		send(gauge, "headgate_origin_up", "1 if the origin answers.", up)
		send(counter, "headgate_admitted_total", "Visitors let in.", float64(t.Admitted))
		send(counter, "headgate_joined_total", "Tickets issued.", float64(t.Joined))
		send(counter, "headgate_called_total", "Calls of tickets.", float64(t.Called))
		send(counter, "headgate_claimed_total", "Calls that were claimed.", float64(t.Claimed))
		send(counter, "headgate_calls_lapsed_total", "Calls that nobody claimed.",
			float64(t.CallsLapsed))
		empty := prometheus.NewDesc("headgate_call_empty_seconds",
			"How long claimed slots stood called and empty.", []string{"room"}, nil)
		ch <- prometheus.MustNewConstSummary(empty, uint64(t.Claimed), t.CallEmptySeconds, nil, st.Name)
		asked := prometheus.NewDesc("headgate_newcomers_asked_seconds",
			"Newcomers whom this process had to ask the room's counter for, and how long that took.",
			[]string{"room"}, nil)
		ch <- prometheus.MustNewConstSummary(asked, uint64(t.CounterRequests),
			t.CounterRequestSeconds, nil, st.Name)
		send(counter, "headgate_waiting_answers_total", "Answers to visitors who wait.",
			float64(t.WaitingAnswers))
		send(counter, "headgate_revoked_total", "Stays ended by the origin.", float64(t.Revoked))
		send(counter, "headgate_completed_total", "Visits that a backend has completed here.",
			float64(g.ended.completed.Load()))
		send(counter, "headgate_abandoned_total", "Visits that a backend has abandoned here.",
			float64(g.ended.abandoned.Load()))
		send(counter, "headgate_excluded_total", "Requests that pass uncounted.",
			float64(t.Excluded))
		send(counter, "headgate_forged_cookies_total", "Cookies this room did not seal.",
			float64(t.Forged))
		send(counter, "headgate_refused_full_total", "Visitors told that the line is full.",
			float64(t.Full))
		send(counter, "headgate_refused_join_limit_total",
			"Joins refused because of their address.", float64(t.Limited))
		send(counter, "headgate_passes_shared_total",
			"Visits whose pass was used in more networks than pass_sharing allows.", float64(t.PassesShared))
		send(counter, "headgate_refused_pass_sharing_total",
			"Requests with a pass that came from one network too many.", float64(t.PassesRefused))
		send(counter, "headgate_refused_excluded_total",
			"Excluded requests refused because too many were in flight.", float64(t.InFlightRejected))
		send(counter, "headgate_given_up_total", "Places that visitors have given up.",
			float64(t.LeftLine))
		send(counter, "headgate_shadow_held_total", "Visitors shadow mode would have held.",
			float64(t.Shadowed))
		c.auto(ch, &st)
		c.rules(ch, &st)
		c.lanes(ch, &st)
		c.challenges(ch, &st)
		c.counted(ch, &st)
		c.record(ch, &st)
		c.datacenters(ch, &st)
	}
}

// auto collects what was found about the limits of a room. What is not known is left out.
func (c *collector) auto(ch chan<- prometheus.Metric, st *status.Room) {
	a := st.Auto
	if a == nil {
		return
	}
	send := func(name, help string, v float64) {
		if v >= 0 {
			ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{"room"}, nil),
				prometheus.GaugeValue, v, st.Name)
		}
	}
	send("headgate_found_total_active_users", "Limit of visitors at once that was found.", float64(a.Active))
	send("headgate_found_new_users_per_minute", "Limit of new visitors in any minute that was found.",
		float64(a.New))
	send("headgate_origin_knee_requests_per_second",
		"Requests that the origin answers within its target.", a.Knee)
	send("headgate_origin_p95_of_target",
		"95th percentile of the origin's latency, as a share of its target.", a.P95)
	send("headgate_origin_load", "Load of the origin as it was reported; 1 is full.", a.Load)
	send("headgate_signal_senders",
		"Nodes or data centers whose signals of the origin arrive.", float64(a.Senders))
	why := prometheus.NewDesc("headgate_limit_decision", "Why the limits are as they are; always 1.",
		[]string{"room", "mode", "signal", "reason"}, nil)
	ch <- prometheus.MustNewConstMetric(why, prometheus.GaugeValue, 1, st.Name, a.Mode,
		a.Signal, adaptive.Label(a.Reason))
}

// process collects the metrics of the process itself.
func (c *collector) process(ch chan<- prometheus.Metric) {
	read, b := c.s.read.Load(), readBuild()
	good := 0.0
	if read.err == nil {
		good = 1
	}
	send := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil),
			prometheus.GaugeValue, v)
	}
	send("headgate_config_last_reload_successful",
		"1 if the configuration was good when it was read last.", good)
	send("headgate_config_last_reload_success_timestamp_seconds",
		"When a good configuration was read last.", float64(read.good.UnixMilli())/1000)
	for to, n := range c.s.node.Rooms.MessagesSent() {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("headgate_datacenter_messages_total",
			"Messages sent to another data center.", []string{"to"}, nil),
			prometheus.CounterValue, float64(n), to)
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("headgate_build_info",
		"Which headgate this is; always 1.", []string{"version", "revision", "go_version"}, nil),
		prometheus.GaugeValue, 1, b.version, b.revision, b.golang)
}

// datacenters collects the metrics of the other data centers.
func (c *collector) datacenters(ch chan<- prometheus.Metric, st *status.Room) {
	d := st.Datacenters
	if d == nil {
		return
	}
	send := func(name, help string, v float64, labels ...string) {
		names := []string{"room", "datacenter"}[:len(labels)]
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil),
			prometheus.GaugeValue, v, labels...)
	}
	send("headgate_anywhere_free_slots", "Slots of users at once that no data center holds.",
		float64(d.Anywhere.Free), st.Name)
	send("headgate_anywhere_presumed_slots", "Slots lent to data centers that nobody hears.",
		float64(d.Anywhere.Presumed), st.Name)
	send("headgate_anywhere_lent_slots", "Slots of users at once lent to all data centers.",
		float64(d.Anywhere.Lent), st.Name)
	send("headgate_anywhere_bound_slots",
		"How many may be lent: the limit, or that of before until enough have come back.",
		float64(d.Anywhere.Bound), st.Name)
	send("headgate_order_uncertainty_seconds",
		"How well the data centers know in which order people came.", d.Uncertainty, st.Name)
	for i := range d.Datacenters {
		s := &d.Datacenters[i]
		send("headgate_datacenter_age_seconds",
			"How old what is known of a data center is, -1 if nothing is.", s.Age, st.Name, s.Name)
		send("headgate_datacenter_held_slots", "Slots of users at once lent to a data center.",
			float64(s.Held), st.Name, s.Name)
		send("headgate_datacenter_active_users", "Visitors inside by a data center.",
			float64(s.Active), st.Name, s.Name)
		send("headgate_datacenter_waiting_users", "Visitors in the line of a data center.",
			float64(s.Waiting), st.Name, s.Name)
	}
}

// record collects the metrics of the storage of a room's record.
func (c *collector) record(ch chan<- prometheus.Metric, st *status.Room) {
	gauge := func(name, help string, v float64) {
		d := prometheus.NewDesc(name, help, []string{"room"}, nil)
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, st.Name)
	}
	writes := prometheus.NewDesc("headgate_record_writes_total", "Writes of the counter's record.",
		[]string{"room"}, nil)
	ch <- prometheus.MustNewConstMetric(writes, prometheus.CounterValue,
		float64(st.Totals.Writes), st.Name)
	took := prometheus.NewDesc("headgate_record_write_seconds",
		"How long writes of the counter's record took, synced.", []string{"room"}, nil)
	ch <- prometheus.MustNewConstSummary(took, uint64(st.Totals.Writes), st.Totals.WriteSeconds,
		nil, st.Name)
	damaged := 0.0
	if st.Record.Damaged != "" {
		damaged = 1
	}
	gauge("headgate_record_age_seconds", "Since the newest confirmed write was built.", st.Record.Age)
	gauge("headgate_record_refused_seconds", "The disk refuses writes for so long, 0 it does not.",
		st.Record.WriteFailing)
	gauge("headgate_record_quiet_seconds",
		"Nobody new is let in for so long: the record was older than what was told.", st.Record.Quiet)
	gauge("headgate_record_damaged", "1 if the record cannot be read.", damaged)
}

// counted collects which process hosts the counter of a room, how old its figures are, and what
// bounds the room.
func (c *collector) counted(ch chan<- prometheus.Metric, st *status.Room) {
	gauge := func(name, help string, v float64) {
		d := prometheus.NewDesc(name, help, []string{"room"}, nil)
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, st.Name)
	}
	hosted := 0.0
	if st.Hosted {
		hosted = 1
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("headgate_room_hosted",
		"1 if this process counts the room, of all of its data center.",
		[]string{"room", "datacenter"}, nil),
		prometheus.GaugeValue, hosted, st.Name, c.s.node.About.Datacenter)
	gauge("headgate_room_state_age_seconds",
		"Since who counts the room has told this process of it, -1 never.", st.Record.LastHeard)
	gauge("headgate_active_users_bound",
		"What bounds visitors inside now: the limit, or that of before until enough have left.",
		float64(st.Bound.Active))
	gauge("headgate_new_users_bound",
		"What bounds new visitors within a minute now, as headgate_active_users_bound.",
		float64(st.Bound.New))
	wait := st.MaxWaitSeconds
	if st.WaitingUsers == 0 && st.Status == "not_queueing" {
		wait = 0
	}
	gauge("headgate_estimated_wait_seconds",
		"How long the last in the line is expected to wait, -1 nobody knows.", wait)
}

// node collects the metrics of the machine and of the other members of the cluster.
func (c *collector) node(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil),
			prometheus.GaugeValue, v)
	}
	if free, size, err := platform.Space(c.s.cfg.Data); err == nil {
		gauge("headgate_data_free_bytes", "What headgate may still write to the disk of its data folder.",
			float64(free))
		gauge("headgate_data_size_bytes", "Size of that disk.", float64(size))
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("headgate_refused_connections_total",
		"Connections closed because their address had too many.", nil, nil),
		prometheus.CounterValue, float64(c.s.conns.Refused()))
	if !c.ends.IsZero() {
		gauge("headgate_cluster_certificate_expires_timestamp_seconds",
			"When this node's certificate in the cluster expires.", float64(c.ends.Unix()))
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
	gauge("headgate_cluster_nodes", "Processes of the data center that this one hears, itself included.",
		float64(alive))
	gauge("headgate_clock_offset_seconds", "How far the wall clock here is ahead of those of the others.",
		offset(ahead))
}

// queues collects the metrics of the queues that this process hosts, so that each queue is reported
// by one process.
func (c *collector) queues(ch chan<- prometheus.Metric) {
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
		send := func(kind prometheus.ValueType, name, help string, v float64) {
			d := prometheus.NewDesc(name, help, []string{"queue"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, st.Name)
		}
		gauge, counter, t := prometheus.GaugeValue, prometheus.CounterValue, &st.Totals
		send(gauge, "headgate_queue_rate", "Jobs a second at most, beside the limits; 0 is no bound.", st.Rate)
		paused := 0.0
		if st.Paused {
			paused = 1
		}
		send(gauge, "headgate_queue_jobs", "Jobs that are not done with and not dead.", float64(st.Depth))
		send(gauge, "headgate_queue_later_jobs", "Of them, those that go at a time.", float64(st.Later))
		send(gauge, "headgate_queue_dead_jobs", "Jobs that nobody tries any more.", float64(st.Dead))
		send(gauge, "headgate_queue_in_flight", "Deliveries under way.", float64(st.InFlight))
		send(gauge, "headgate_queue_oldest_seconds", "Since the oldest job was put.", st.OldestAge)
		send(gauge, "headgate_queue_empty_in_seconds", "Until the queue is empty at this pace, -1 never.",
			st.EmptyIn)
		send(gauge, "headgate_queue_paused", "1 if nothing is to go out.", paused)
		send(gauge, "headgate_queue_bytes", "Bytes kept on the disk.", float64(st.Bytes))
		send(gauge, "headgate_queue_keys", "Idempotency keys known.", float64(st.Keys))
		send(counter, "headgate_queue_put_total", "Jobs put.", float64(t.Put))
		send(counter, "headgate_queue_duplicates_total", "Jobs let go because their key was known.",
			float64(t.Duplicates))
		send(counter, "headgate_queue_delivered_total", "Jobs delivered.", float64(t.Delivered))
		send(counter, "headgate_queue_retried_total", "Deliveries that failed and are tried again.",
			float64(t.Retried))
		send(counter, "headgate_queue_busy_total", "Deliveries that an overrun target has refused.",
			float64(t.Busy))
		send(counter, "headgate_queue_died_total", "Jobs that died.", float64(t.Dead))
		send(counter, "headgate_queue_write_failures_total", "Outcomes that the engine did not take at once.",
			float64(t.NotesFailed))
		took := prometheus.NewDesc("headgate_queue_delivery_seconds", "How long deliveries took.",
			[]string{"queue"}, nil)
		n := t.Delivered + t.Retried + t.Busy + t.Dead
		ch <- prometheus.MustNewConstSummary(took, uint64(n), t.DeliverySeconds, nil, st.Name)
	}
}

// limits collects what each limit has decided, and what this process counts for others.
func (c *collector) limits(ch chan<- prometheus.Metric) {
	hosted, standby := c.s.node.Rooms.LimitShards()
	shards := prometheus.NewDesc("headgate_limit_shards",
		"Shards of the keys of shared limits that this node hosts, or stands by for.", []string{"role"}, nil)
	ch <- prometheus.MustNewConstMetric(shards, prometheus.GaugeValue, float64(hosted), "host")
	ch <- prometheus.MustNewConstMetric(shards, prometheus.GaugeValue, float64(standby), "standby")
	for _, cfg := range c.s.limits.Rules.Limits() {
		t, err := c.s.limits.Rules.Totals(cfg.Name)
		if err != nil { // removed in the meantime
			continue
		}
		send := func(kind prometheus.ValueType, name, help string, v float64) {
			d := prometheus.NewDesc(name, help, []string{"limit"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, cfg.Name)
		}
		send(prometheus.CounterValue, "headgate_limit_passed_total", "Calls that a limit let pass.",
			float64(t.Passed))
		send(prometheus.CounterValue, "headgate_limit_refused_total", "Calls that a limit refused.",
			float64(t.Refused))
		send(prometheus.CounterValue, "headgate_limit_shadowed_total",
			"Calls that a limit in shadow mode would have refused.", float64(t.Shadowed))
		send(prometheus.CounterValue, "headgate_limit_unreachable_total",
			"Calls decided while the host of their key was out of reach.", float64(t.Unreachable))
		send(prometheus.GaugeValue, "headgate_limit_keys", "Keys that a limit holds in this process.",
			float64(t.Keys))
		c.amount(ch, cfg)
	}
}

// amount collects what this process has found about the amount of a limit. What is not known is left out.
func (c *collector) amount(ch chan<- prometheus.Metric, cfg *ratelimit.Limit) {
	a := c.s.limits.FoundHere(cfg.Name)
	if a == nil {
		return
	}
	send := func(name, help string, v float64) {
		if v >= 0 {
			ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{"limit"}, nil),
				prometheus.GaugeValue, v, cfg.Name)
		}
	}
	send("headgate_found_amount", "Amount of a limit that was found.", float64(a.Amount))
	send("headgate_limit_in_use", "Calls that hold a slot of a limit, on average.", a.InUse)
	send("headgate_limit_knee_requests_per_second", "Calls that the origin answers within its target.", a.Knee)
	send("headgate_limit_p95_of_target",
		"95th percentile of the latency of calls, as a share of its target.", a.P95)
	send("headgate_limit_signal_senders", "Processes whose signals of the calls arrive.", float64(a.Senders))
	why := prometheus.NewDesc("headgate_amount_decision", "Why the amount is as it is; always 1.",
		[]string{"limit", "mode", "signal", "reason"}, nil)
	ch <- prometheus.MustNewConstMetric(why, prometheus.GaugeValue, 1, cfg.Name, cfg.Auto.Mode,
		a.Signal, adaptive.Label(a.Reason))
}

// rules collects the decisions of the rules of a room.
func (c *collector) rules(ch chan<- prometheus.Metric, st *status.Room) {
	d := prometheus.NewDesc("headgate_rules_total", "Requests that rules have decided on.",
		[]string{"room", "action"}, nil)
	t := &st.Totals
	for action, n := range map[string]int64{
		"bypass": t.Bypassed, "crawler": t.Crawlers, "deny": t.Denied, "lane": t.SentToLane,
	} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), st.Name, action)
	}
}

// lanes collects the metrics of the lanes of a room.
func (c *collector) lanes(ch chan<- prometheus.Metric, st *status.Room) {
	labels := []string{"room", "lane"}
	say := func(name, help string, kind prometheus.ValueType, n int64, lane string) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), kind, float64(n),
			st.Name, lane)
	}
	for _, x := range st.Lanes {
		say("headgate_lane_waiting", "Visitors in a lane, those called included.", prometheus.GaugeValue,
			x.Waiting, x.Name)
		say("headgate_lane_calls_total", "Calls of a lane since the host took over.",
			prometheus.CounterValue, x.Calls, x.Name)
	}
}

// challenges collects the solutions in a room that asks for them.
func (c *collector) challenges(ch chan<- prometheus.Metric, st *status.Room) {
	x := st.Challenges
	if x == nil {
		return
	}
	send := func(name, help string, n int64, labels ...string) {
		names := []string{"room", "reason"}[:1+len(labels)]
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil),
			prometheus.CounterValue, float64(n), append([]string{st.Name}, labels...)...)
	}
	send("headgate_challenges_issued_total", "Tickets with something to solve.", x.Issued)
	send("headgate_challenges_solved_total", "Solutions that were right.", x.Solved)
	for reason, n := range x.Refused {
		send("headgate_challenges_refused_total", "Solutions that were refused, and why.", n, reason)
	}
}

// traces collects what happened to recorded traces. Without tracing it sends nothing.
func (c *collector) traces(ch chan<- prometheus.Metric) {
	n, on := c.s.traces.Totals()
	if !on {
		return
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("headgate_traces_sent_total",
		"Spans that the collector has taken.", nil, nil), prometheus.CounterValue, float64(n.Sent))
	dropped := prometheus.NewDesc("headgate_traces_dropped_total", "Spans that were dropped, and why.",
		[]string{"why"}, nil)
	for why, n := range map[string]uint64{"full": n.Full, "refused": n.Refused, "ended": n.Ended} {
		ch <- prometheus.MustNewConstMetric(dropped, prometheus.CounterValue, float64(n), why)
	}
}

// webhooks collects the metrics of the webhooks: what this process has sent, and what waits in the
// queues that it hosts.
func (c *collector) webhooks(ch chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), collectWait)
	defer stop()
	for _, w := range slices.Clone(c.s.hooks.all()) {
		send := func(kind prometheus.ValueType, name, help string, v float64) {
			d := prometheus.NewDesc(name, help, []string{"webhook"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, w.file.Name)
		}
		send(prometheus.CounterValue, "headgate_webhook_sent_total", "Messages that the receiver has taken.",
			float64(w.post.sent.Load()))
		send(prometheus.CounterValue, "headgate_webhook_failed_total", "Attempts to send that have failed.",
			float64(w.post.failed.Load()))
		send(prometheus.CounterValue, "headgate_webhook_dropped_total", "Messages given up.",
			float64(w.post.dropped.Load()))
		if !w.Hosted() {
			continue
		}
		if st, err := w.Status(ctx); err == nil {
			send(prometheus.GaugeValue, "headgate_webhook_waiting_messages", "Messages not yet taken.",
				float64(st.Depth))
			send(prometheus.GaugeValue, "headgate_webhook_oldest_seconds",
				"Since the oldest of them was put.", st.OldestAge)
		}
		st, err := w.post.state(ctx)
		if err != nil {
			continue
		}
		off := 0.0
		if st.off(w.file.URL) {
			off = 1
		}
		send(prometheus.GaugeValue, "headgate_webhook_off", "1 if the receiver has answered 410 Gone.", off)
	}
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

// collectTLS sends the metrics of the certificates.
func (s *Server) collectTLS(ch chan<- prometheus.Metric) {
	if s.https == nil {
		return
	}
	states, good := s.https.keeper.States()
	expires := prometheus.NewDesc("headgate_tls_certificate_expires_timestamp_seconds",
		"When the certificate expires; 0 while there is none.", []string{"name"}, nil)
	for _, st := range states {
		at := 0.0
		if !st.NotAfter.IsZero() {
			at = float64(st.NotAfter.Unix())
		}
		ch <- prometheus.MustNewConstMetric(expires, prometheus.GaugeValue, at, st.Name)
	}
	up := 0.0
	if good {
		up = 1
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("headgate_tls_reload_successful",
		"1 if the last look for a newer certificate was good.", nil, nil), prometheus.GaugeValue, up)
}
