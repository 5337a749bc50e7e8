package server

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/store"
)

// thief speaks on the bus with the certificate of a join file, and says what it likes.
func (p *process) thief(file string) *store.Bus {
	p.t.Helper()
	f := p.joinFile(file)
	t, err := f.TLS()
	if err != nil {
		p.t.Fatal(err)
	}
	var servers []string
	for _, name := range f.Store {
		servers = append(servers, f.Peers[name])
	}
	conn, err := embedded.Connect(p.t.Context(), embedded.Remote{Name: "w-0badcafe", Servers: servers,
		TLS: t})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(conn.Close)
	eventually(p.t, "connected", conn.IsConnected)
	return store.NewBus(conn)
}

func (p *process) joinFile(name string) *join.File {
	p.t.Helper()
	f, err := join.Read(filepath.Join(filepath.Dir(p.file), name+".join"))
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// asked is what is answered to a question, "" for nothing.
func asked(t *testing.T, bus *store.Bus, name, msg string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	b, err := bus.Ask(ctx, name, []byte(msg))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(b)
}
