package server

import (
	"time"

	"github.com/headgate/headgate/internal/dashboard"
)

// openDashboard makes what answers at admin_listen: the dashboard, and the API behind it.
func (s *Server) openDashboard() (*dashboard.Dashboard, error) {
	return dashboard.New(dashboard.Config{API: s.adminAPI(), Rooms: s.watched, Log: s.log})
}

// watched is where the rooms stand, with what came of the requests to their origins.
func (s *Server) watched() []dashboard.Room {
	var all []dashboard.Room
	for _, g := range s.set.Load().gates {
		o := g.origin
		all = append(all, dashboard.Room{Status: g.room.Status(), Answers: o.answers(),
			Errors: o.none.Load() + o.c5xx.Load(), Took: time.Duration(o.nanos.Load())})
	}
	return all
}
