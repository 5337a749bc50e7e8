package broker

import (
	"encoding/json"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Broker is a cluster of servers. Make one with New.
type Broker struct {
	mu      sync.Mutex
	rng     *rand.Rand
	servers []*server
	streams map[string]*stream
	exact   map[string][]*sub // by subject
	wild    []*sub            // patterns
	leader  *server           // nil: none now
	term    int               // of the leader: one more with each election
	voting  *time.Timer
	silent  bool          // without a leader requests are lost, not rejected
	queue   []*proposal   // not committed yet
	last    time.Time     // when the newest of them is due
	slow    time.Duration // added to each commit
	full    bool
	unacked int // number of acknowledgments to lose
	commits int
	far     time.Duration // from one server to another
	closed  bool
}

// A server is one of the cluster.
type server struct {
	name    string
	up      bool
	clients []*client
	cut     map[*server]bool     // messages there are dropped
	hold    map[*server]bool     // messages there are held back
	held    map[*server][]func() // what waits
	sent    map[*server][]func() // in flight
	knew    map[string]*stream   // state from which a former leader still answers
	until   time.Time            // until then
}

// passes reports whether messages of one server reach another.
func passes(from, to *server) bool {
	return from == to || from.up && to.up && !from.cut[to] && !from.hold[to]
}

func (b *Broker) drawLocked(least, most time.Duration) time.Duration {
	return least + time.Duration(b.rng.Int64N(int64(most-least)))
}

// A client is a connection to a server.
type client struct {
	broker  *Broker
	server  *server
	account string
	conn    net.Conn
	subs    []*sub // guarded by the broker's mutex, as what follows
	out     [][]byte
	closed  bool
	more    chan struct{} // has room for one
}

// A sub is a subscription of a client.
type sub struct {
	client  *client
	subject string
	group   string
	sid     string
	left    int // messages left before it ends; 0: no end
}

// A proposal is an uncommitted change of the streams.
type proposal struct {
	from  *server
	reply string
	do    func() any // applies the change and returns the answer
	term  int
}

// A stream stores numbered messages.
type stream struct {
	raw     json.RawMessage // its configuration, as the client wrote it
	cfg     streamConfig
	created time.Time
	first   uint64
	last    uint64
	bytes   int64
	all     map[uint64]*stored
	newest  map[string]uint64 // by subject
	ids     map[string]known
	readers map[string]*reader
}

type streamConfig struct {
	Name       string        `json:"name"`
	Subjects   []string      `json:"subjects"`
	Replicas   int           `json:"num_replicas"`
	MaxBytes   int64         `json:"max_bytes"`
	PerSubject int64         `json:"max_msgs_per_subject"`
	Discard    string        `json:"discard"`
	Window     time.Duration `json:"duplicate_window"`
}

// A known is an entry that a retry may write again.
type known struct {
	seq uint64
	at  time.Time
}

type stored struct {
	seq     uint64
	subject string
	data    []byte
	at      time.Time
	size    int64
}

// A reader is a consumer that pulls entries and acknowledges none. It is lost with its leader.
type reader struct {
	broker *Broker
	stream *stream
	name   string
	next   uint64
	given  uint64 // number of delivered entries
	asks   []*pull
}

// A pull is a reader's request for more entries.
type pull struct {
	from  *server
	reply string
	batch int
	bytes int
	beat  time.Duration
	timer *time.Timer
	gone  bool
}
