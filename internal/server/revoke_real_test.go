//go:build real

package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/embedded"
)

const workersRoom = "rooms:\n" +
	"  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 100}\n"

// Finding 13 of the review: with the certificate of a worker all records could be read, the
// sealing keys among them, and written. What a worker needs it still has: its own process
// serves the room, and a change of the room by its API is in force at the store node.
func TestWorkerCertificateReadsNoKeysAndNoLoans(t *testing.T) {
	t.Parallel()
	all := nodes(t, workersRoom, "n1", "w7")
	n1, w7 := all[0], all[1]
	thief := n1.thief("worker")
	secret := []string{"keys", "keys.lhr", "revoked", "counter.shop", "limits.kept.n1.0", "nothing"}
	for _, key := range secret {
		for _, op := range []string{"load", "swap"} {
			msg, err := json.Marshal(map[string]string{"op": op, "name": key})
			if err != nil {
				t.Fatal(err)
			}
			got := asked(t, thief, "records", string(msg)+"\nmine")
			if got != `{"code":"denied"}`+"\n" {
				t.Errorf("%s %s: answered %q", op, key, got)
			}
		}
	}
	for _, key := range []string{"limits.chart", "home"} {
		got := asked(t, thief, "records", `{"op":"swap","name":"`+key+`","seq":1}`+"\n{}")
		if !strings.HasPrefix(got, `{"code":"denied"`) {
			t.Errorf("%s written: %q", key, got)
		}
	}
	for _, msg := range []string{"", "\n", "{}\n", "null\n", "[]\n", `{"op":"keys","name":""}` + "\n",
		`{"op":"load","name":"live.` + strings.Repeat("x", 800) + `"}` + "\n",
		strings.Repeat("x", 2000) + "\n"} {
		if got := asked(t, thief, "records", msg); !strings.HasPrefix(got, `{"code":"`) {
			t.Errorf("%.40q: answered %.80q", msg, got)
		}
		if got := asked(t, thief, "logs", msg); !strings.HasPrefix(got, `{"code":"`) {
			t.Errorf("log %.40q: answered %.80q", msg, got)
		}
	}
	got := asked(t, thief, "logs", `{"op":"append","name":"HEADGATE","id":"x"}`+"\nmine")
	if !strings.HasPrefix(got, `{"code":"not found"`) {
		t.Errorf("a log that nobody has made: %q", got)
	}

	for _, p := range all { // the real worker does what it did
		if res := get(t, p.visitors+"/", "text/html"); res.StatusCode != 200 {
			t.Errorf("a visitor got %d", res.StatusCode)
		}
	}
	w7.change("shop", map[string]string{"total_active_users": "7"})
	eventually(t, "in force at the store node", func() bool {
		return n1.status("shop").TotalActiveUsers == 7
	})
	if !slices.Equal(n1.keys(), w7.keys()) {
		t.Errorf("the worker has the keys %v, the store node %v", w7.keys(), n1.keys())
	}
	for path, body := range map[string]string{"/v1/keys/rotate": "{}",
		"/v1/cluster/revoke": `{"serial":"00112233445566778899"}`} {
		w7.said("POST", path, body, 409, "store node")
	}
	w7.said("DELETE", "/v1/keys/1", "", 409, "store node")
	if c, err := w7.s.Cluster(t.Context()); err != nil || len(c.Nodes) != 2 || c.Problem != "" {
		t.Errorf("the worker sees %+v %v", c, err)
	}
}

// A revoked worker is cut off, hears no new sealing key, and stays out when the store node
// has started anew. Other workers go on.
func TestRevokedWorkerGetsNoNewKeys(t *testing.T) {
	t.Parallel()
	all := nodes(t, workersRoom, "n1", "w7")
	n1, w7 := all[0], all[1]
	other := n1.thief("worker")
	serial, _, err := n1.joinFile("w7").Serial()
	if err != nil {
		t.Fatal(err)
	}
	before := n1.keys()
	own, _, err := n1.joinFile("n1").Serial()
	if err != nil {
		t.Fatal(err)
	}
	n1.said("POST", "/v1/cluster/revoke", `{"serial":"`+own+`"}`, 409, "another store node")
	n1.said("POST", "/v1/cluster/revoke", `{"serial":"w7"}`, 409, "serial")
	n1.said("POST", "/v1/cluster/revoke", `{"node":"w7"}`, 422, "")
	body := `{"serial":"` + strings.ToUpper(serial) + `","node":"w7"}`
	n1.said("POST", "/v1/cluster/revoke", body, 200, `"key":2`)
	eventually(t, "cut off", func() bool { return !w7.s.node.Config.NATS.IsConnected() })
	if got := n1.keys(); len(got) != len(before)+1 {
		t.Errorf("the store node has the keys %v, had %v", got, before)
	}
	if got := asked(t, other, "sealing", "keys"); strings.Count(got, `"id"`) != len(before)+1 {
		t.Errorf("another worker is told %d keys", strings.Count(got, `"id"`))
	}
	if err := w7.s.node.RereadKeys(); err == nil {
		t.Error("the revoked worker reads the keys")
	}
	c, err := n1.s.Cluster(t.Context())
	if err != nil || len(c.Revoked) != 1 || c.Revoked[0].Serial != serial || c.Revoked[0].Node != "w7" ||
		c.Revoked[0].By == "" || c.Revoked[0].At.IsZero() {
		t.Errorf("status shows %+v %v", c.Revoked, err)
	}
	eventually(t, "copied to the data folder", func() bool {
		b, err := os.ReadFile(n1.s.node.Folder.Path("revoked"))
		return err == nil && strings.Count(string(b), `"serial":`) == 1 && strings.Contains(string(b), serial)
	})
	n1.restart()
	f := n1.joinFile("w7")
	config, err := f.TLS()
	if err != nil {
		t.Fatal(err)
	}
	said := &syncBuffer{}
	conn, err := embedded.Connect(t.Context(), embedded.Remote{Name: "w7", Servers: []string{f.Peers["n1"]},
		TLS: config, Log: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "refused", func() bool { return conn.LastError() != nil })
	if conn.IsConnected() || errors.Is(conn.LastError(), context.DeadlineExceeded) {
		t.Errorf("after a restart it is connected, or not refused: %v", conn.LastError())
	}
}
