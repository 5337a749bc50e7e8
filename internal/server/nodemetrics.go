package server

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/platform"
)

// counted tells who counts a room, how old that is, and what bounds it.
func (c *collector) counted(ch chan<- prometheus.Metric, st *headgate.Status) {
	gauge := func(name, help string, v float64) {
		d := prometheus.NewDesc(name, help, []string{"room"}, nil)
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, st.Name)
	}
	hosted := 0.0
	if st.Hosted {
		hosted = 1
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("headgate_room_hosted",
		"1 if this process counts the room, of all of its data centre.",
		[]string{"room", "datacenter"}, nil),
		prometheus.GaugeValue, hosted, st.Name, c.s.durable.about.Datacenter)
	gauge("headgate_room_state_age_seconds",
		"Since who counts the room has told this process of it, -1 never.", st.Record.Told)
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

// node tells of the machine and of the others of the cluster.
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
	nodes := c.s.durable.rooms.Nodes()
	if nodes == nil {
		return
	}
	self, ahead, alive := c.s.durable.node.Node, []float64{}, 0
	for i := range nodes {
		if n := &nodes[i]; n.Alive {
			alive++
			if n.Name != self {
				ahead = append(ahead, n.Skew)
			}
		}
	}
	gauge("headgate_cluster_nodes", "Processes of the data centre that this one hears, itself included.",
		float64(alive))
	gauge("headgate_clock_offset_seconds", "How far the wall clock here is ahead of those of the others.",
		offset(ahead))
}

// offset is how far this clock is ahead, when the others are ahead of it by so much: of three
// and more the one in the middle is taken for right, of two nobody can tell, and both differ.
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

// clusterEnds is when this node's certificate in the cluster expires; it is read at the start.
func (s *Server) clusterEnds() time.Time {
	if s.cfg.Cluster == nil {
		return time.Time{}
	}
	return s.cfg.Cluster.Ends()
}
