package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collectWait bounds how long a scrape waits for the node that hosts a queue. Chosen.
const collectWait = time.Second

// queues tells of the queues that this process hosts: of each, one process tells.
func (c *collector) queues(ch chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), collectWait)
	defer stop()
	for _, q := range c.s.jobs.all() {
		if !q.Hosted() {
			continue
		}
		st, err := q.Status(ctx)
		if err != nil { // handed over since
			continue
		}
		send := func(kind prometheus.ValueType, name, help string, v float64) {
			d := prometheus.NewDesc(name, help, []string{"queue"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, st.Name)
		}
		gauge, counter, t := prometheus.GaugeValue, prometheus.CounterValue, &st.Totals
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
