package embedded

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	random "math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/rights"
	"github.com/headgate/headgate/internal/seldom"
)

// Parameters of a connection to engines of other processes. Chosen: three missed pings detect a
// machine that vanished without closing its connection, about when the others finish their
// election.
const (
	dialWait      = 2 * time.Second
	reconnectMin  = 100 * time.Millisecond
	reconnectMax  = time.Second
	askEvery      = 2 * time.Second
	unansweredMax = 2
)

// A Remote configures how to reach the engines of a cluster.
type Remote struct {
	// Name is the name of this process in the engines' lists. With the certificate of a worker it
	// must be a name of that certificate, or w- and 8 hexadecimal digits.
	Name    string
	Servers []string     // host:port of each engine
	TLS     *tls.Config  // of this process: Certificates, RootCAs and ServerName
	Log     *slog.Logger // default: discard

	// Dial, if not nil, opens the connection instead of TLS to Servers.
	Dial func(account string) (net.Conn, error)
}

// A dialer opens connections of one account for nats.go.
type dialer struct {
	dial    func(account string) (net.Conn, error)
	account string
}

// InProcessConn implements nats.InProcessConnProvider.
func (d dialer) InProcessConn() (net.Conn, error) { return d.dial(d.account) }

// Connect connects to any one of the engines. The connection outlives them: when an engine is gone
// it tries the others, without end, until the caller closes it. Messages published meanwhile fail.
// If no engine answers now, Connect does not wait for one, but it may take 2 s for each silent
// engine. If ctx ends meanwhile, Connect returns the error of ctx.
func Connect(ctx context.Context, r Remote) (*nats.Conn, error) {
	if r.TLS == nil || r.TLS.RootCAs == nil || r.TLS.ServerName == "" || r.TLS.InsecureSkipVerify {
		return nil, &clusterError{"a connection to engines needs certificates at both ends"}
	}
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	var servers []string
	scheme := "tls"
	if r.Dial != nil {
		scheme = "nats"
	}
	for _, addr := range r.Servers {
		if _, _, err := hostPort(addr); err != nil {
			return nil, err
		}
		servers = append(servers, (&url.URL{Scheme: scheme, Host: addr}).String())
	}
	if len(servers) == 0 {
		return nil, &clusterError{"a connection to engines needs an address"}
	}
	told := reporter{who: "store node", log: r.Log}
	options := append(told.options(), steady(r.Name)...)
	if r.Dial != nil {
		options = append(options, nats.InProcessServer(dialer{r.Dial, ""}))
	} else {
		options = append(options, nats.Secure(r.TLS.Clone()), nats.TLSHandshakeFirst())
	}
	options = append(options, nats.IgnoreDiscoveredServers())
	// Answers to a worker go to this connection alone: see doorkeeper.
	secret := rand.Text()
	options = append(options, nats.UserInfo(secret, ""), nats.CustomInboxPrefix(rights.Inbox(secret)))
	return connect(ctx, servers, options)
}

// connect connects to one of the servers, unless ctx has ended.
func connect(ctx context.Context, servers []string, options []nats.Option) (*nats.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := nats.Connect(strings.Join(servers, ","), options...)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// steady returns the options of a connection that never gives up.
func steady(name string) []nats.Option {
	return []nats.Option{
		nats.Name(name), nats.Timeout(dialWait), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.ReconnectBufSize(-1), // fail at once if disconnected
		nats.PingInterval(askEvery), nats.MaxPingsOutstanding(unansweredMax),
		nats.IgnoreAuthErrorAbort(),
	}
}

// A reporter logs what happens to a connection.
type reporter struct {
	who  string // name of the other end
	log  *slog.Logger
	look func(*nats.Conn) error // checks the connection; nil: any server will do
}

// options log what happens to a connection. Repeated errors are logged seldom: a client tries again
// several times a second.
func (r reporter) options() []nats.Option {
	said := &seldom.Lines{}
	connected := func(c *nats.Conn) {
		r.log.Info("connected to "+r.who, "node", c.ConnectedServerName())
		if r.look == nil {
			return
		}
		if err := r.look(c); err != nil {
			r.log.Error(r.who+" will not do", "error", err)
		}
	}
	return []nats.Option{
		nats.ConnectHandler(connected), nats.ReconnectHandler(connected),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: the caller's Close
				r.log.Warn("connection to "+r.who+" lost: another is tried", "error", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if said.Due("reconnect") {
				r.log.Warn("no connection to "+r.who+": trying again", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if said.Due("async") {
				r.log.Warn("connection to "+r.who+" has an error", "error", err)
			}
		}),
	}
}

// reconnectDelay returns how long to wait after all engines have been tried rounds times. It
// doubles each time and has a random part, so that not all processes try again at once.
func reconnectDelay(rounds int) time.Duration {
	d := reconnectMax
	if rounds < 4 {
		d = min(d, reconnectMin<<max(rounds-1, 0))
	}
	return d/2 + random.N(d/2)
}
