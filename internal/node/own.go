package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/store"
)

// ownPatience is how long a start continues with a NATS that rejects it: a NATS that is still
// starting may not know its accounts yet. Chosen.
const ownPatience = 3 * time.Second

// openOwn connects to the operator's own NATS. Every process may host rooms: no process has the
// records, so none is closer to them.
func (k *Node) openOwn(ctx context.Context, e *config.Engine) (err error) {
	node := e.Name
	if node == "" {
		node = fmt.Sprintf("h-%08x", rand.Uint32())
	}
	k.Config.Node, k.Config.CanHost, k.Config.Replicas = node, true, e.Replicas
	if e.Replicas == 0 {
		k.Config.Replicas = store.AutoReplicas
	}
	k.About = api.Cluster{Engine: strings.Join(e.URLs, ","), Store: []string{}}
	own := embedded.External{Name: "headgate " + node, URLs: e.URLs, CA: e.CA, Cert: e.Cert, Key: e.Key,
		Log: k.log, Look: store.TooOld, Dial: k.options.Dial}
	switch e.Kind {
	case config.CredentialJWT:
		own.Creds = e.Credentials
	case config.CredentialSeed:
		own.Seed = e.Credentials
	case config.CredentialPassword:
		own.Login = func() (string, string) {
			user, password, err := config.ReadPassword(e.Credentials)
			if err != nil {
				k.log.Error("credentials cannot be read", "error", err)
			}
			return user, password
		}
	}
	if k.Config.NATS, err = embedded.ConnectExternal(ctx, own); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	return nil
}

// unfit returns why NATS cannot be the engine, or nil if it may only be slow to start. For embedded
// engines, waiting is always enough.
func (k *Node) unfit(err error) *store.UnusableError {
	if k.About.Engine == "" {
		return nil
	}
	return store.Diagnose(k.Config.NATS, err)
}
