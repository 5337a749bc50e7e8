package embedded

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/headgate/headgate/internal/store"
)

// operate runs a NATS server from a configuration file, as an operator would, and returns its
// address. STORE in the text is replaced by a folder.
func operate(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	text = strings.ReplaceAll(text, "STORE", filepath.Join(dir, "js"))
	file := write1(t, dir, "nats.conf", text)
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o.Host, o.Port, o.NoLog, o.NoSigs, o.ServerName = "127.0.0.1", -1, true, true, "theirs"
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(startWait) {
		t.Fatal("the operator's server does not start")
	}
	return s.Addr().String()
}

func write1(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// client connects to the operator's NATS.
func client(t *testing.T, o External) *nats.Conn {
	t.Helper()
	o.Name = "one"
	conn, err := ConnectExternal(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func login(user, password string) func() (string, string) {
	return func() (string, string) { return user, password }
}

func connected(t *testing.T, conn *nats.Conn) {
	t.Helper()
	eventually(t, "connected", func(context.Context) error {
		if !conn.IsConnected() {
			return fmt.Errorf("not connected: %w", conn.LastError())
		}
		return nil
	})
}

func TestOwnTakesEachKindOfCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	user, seed := newKey(t, nkeys.CreateUser)
	seedFile := write1(t, dir, "seed", seed+"\n")
	addr := operate(t, fmt.Sprintf("authorization {users = [{nkey: %s}, {user: me, password: secret}]}", user))
	connected(t, client(t, External{URLs: []string{"nats://" + addr}, Seed: seedFile}))

	password := "wrong"
	conn := client(t, External{URLs: []string{"nats://" + addr},
		Login: func() (string, string) { return "me", password }})
	if conn.IsConnected() {
		t.Error("connected by a wrong password")
	}
	conn.Close()
	connected(t, client(t, External{URLs: []string{"nats://" + addr}, Login: login("me", "secret")}))

	config, creds := byJWT(t)
	addr = operate(t, config)
	connected(t, client(t, External{URLs: []string{"nats://" + addr}, Creds: write1(t, dir, "creds", creds)}))
	if _, err := ConnectExternal(t.Context(), External{URLs: []string{"nats://" + addr},
		Seed: write1(t, dir, "bad", "SUsecret")}); err == nil || strings.Contains(err.Error(), "SUsecret") {
		t.Errorf("a seed that is none: %v", err)
	}
}

// newKey returns the public half and the seed of a new key.
func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) (public, seed string) {
	t.Helper()
	k, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err = k.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := k.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return public, string(b)
}

// byJWT returns the configuration of a server that trusts an operator, and the credentials file of
// a user, as nsc makes them.
func byJWT(t *testing.T) (config, creds string) {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	if err != nil {
		t.Fatal(err)
	}
	account, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	public, err := operator.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	accountKey, err := account.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	user, seed := newKey(t, nkeys.CreateUser)
	op, err := jwt.NewOperatorClaims(public).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	acc, err := jwt.NewAccountClaims(accountKey).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	u, err := jwt.NewUserClaims(user).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	b, err := jwt.FormatUserConfig(u, []byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload: {%s: %s}\n", op, accountKey, acc),
		string(b)
}

// A pair is a certificate and its key, also as files.
type pair struct {
	cert       *x509.Certificate
	key        *ecdsa.PrivateKey
	file, kept string
}

// certify makes a certificate signed by by, or self-signed if by is nil.
func certify(t *testing.T, name string, by *pair) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	draft := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), IsCA: by == nil,
		BasicConstraintsValid: true,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	p := &pair{cert: draft, key: key}
	if by == nil {
		by = p
	}
	der, err := x509.CreateCertificate(rand.Reader, draft, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	p.file = write1(t, dir, "cert.pem", block("CERTIFICATE", der))
	p.kept = write1(t, dir, "key.pem", block("PRIVATE KEY", secret))
	return p
}

func TestOwnByCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := certify(t, "ca", nil), certify(t, "ca", nil)
	theirs, ours := certify(t, "localhost", ca), certify(t, "headgate", ca)
	addr := operate(t, fmt.Sprintf("tls {cert_file: %q, key_file: %q, ca_file: %q, verify: true}",
		theirs.file, theirs.kept, ca.file))
	_, port, _ := net.SplitHostPort(addr)
	url := []string{"tls://localhost:" + port}
	connected(t, client(t, External{URLs: url, CA: ca.file, Cert: ours.file, Key: ours.kept}))
	for name, o := range map[string]External{
		"trusts another CA": {CA: stranger.file, Cert: ours.file, Key: ours.kept},
		"trusts the system": {Cert: ours.file, Key: ours.kept},
		"shows nothing":     {CA: ca.file},
	} {
		o.URLs = url
		if conn := client(t, o); conn.IsConnected() {
			t.Errorf("%s: connected", name)
		}
	}
	o := External{URLs: []string{"tls://127.0.0.1:" + port}, CA: ca.file, Cert: ours.file, Key: ours.kept}
	if conn := client(t, o); conn.IsConnected() {
		t.Error("connected to a name that the certificate has not")
	}
}

// records opens the records in this NATS, and returns why that fails.
func records(ctx context.Context, conn *nats.Conn, replicas int) error {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	s, err := store.OpenNATS(ctx, store.NATSConfig{Conn: conn, Replicas: replicas})
	if err != nil {
		return err
	}
	_, _, err = s.Load(ctx, "k")
	if errors.Is(err, store.ErrNotFound) { // else an attempt before has written it, and ended too early
		_, err = s.CompareAndSwap(ctx, "k", 0, []byte("x"))
	}
	if err != nil {
		return err
	}
	return store.NewBus(conn).SelfTest(ctx, "one")
}

const ofOne = "jetstream {store_dir: \"STORE\", sync_interval: always}\n"

func TestOwnThatSuits(t *testing.T) {
	t.Parallel()
	addr := operate(t, ofOne)
	conn := client(t, External{URLs: []string{"nats://" + addr}})
	if err := records(t.Context(), conn, store.AutoReplicas); err != nil {
		t.Fatal(err)
	}
	if e := store.Diagnose(conn, nil); e != nil {
		t.Error(e)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "HEADGATE")
	if err != nil || s.CachedInfo().Config.Replicas != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestOwnThatDoesNotSuit(t *testing.T) {
	t.Parallel()
	const plain = "users = [{user: me, password: secret}]"
	mayNot := func(what string) string {
		return ofOne + "accounts {A {jetstream: enabled, " + strings.Replace(plain, "secret",
			"secret, permissions: "+what, 1) + "}}"
	}
	for _, tt := range []struct {
		name, config, password string
		replicas               int
		want                   string
	}{
		{"wrong password", ofOne + "authorization {" + plain + "}", "x", 1, "NATS does not let headgate in"},
		{"no JetStream", "authorization {" + plain + "}", "secret", 1,
			"no server of this NATS has JetStream"},
		{"none of the account", ofOne + "accounts {A {" + plain + "}}", "secret", 1,
			"not switched on for this account"},
		{"three on one", ofOne + "authorization {" + plain + "}", "secret", 3, "the NATS server is alone"},
		{"no reading", mayNot(`{publish: {deny: "$JS.API.STREAM.MSG.GET.>"}}`), "secret", 1, "MSG.GET.HEADGATE"},
		{"no writing", mayNot(`{publish: {deny: "headgate.record.>"}}`), "secret", 1, "headgate.record.k"},
		{"no info", mayNot(`{publish: {deny: "$JS.API.STREAM.INFO.>"}}`), "secret", 1, "STREAM.INFO.HEADGATE"},
		{"no asking", mayNot(`{publish: {deny: "headgate.1.ask.>"}}`), "secret", 1, "headgate.1.ask.try.one"},
		{"no telling", mayNot(`{publish: {deny: "headgate.1.tell.>"}}`), "secret", 1, "headgate.1.tell.try.one"},
		{"no hearing", mayNot(`{subscribe: {deny: "headgate.1.tell.>"}}`), "secret", 1,
			"headgate.1.tell.try.one"},
		{"no answering", mayNot(`{publish: {deny: "_INBOX.>"}}`), "secret", 1, "Publish to \"_INBOX."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			addr := operate(t, tt.config)
			conn := client(t, External{URLs: []string{"nats://" + addr}, Login: login("me", tt.password)})
			var e *store.UnusableError
			eventually(t, "a reason", func(ctx context.Context) error { // none while it reconnects
				err := records(ctx, conn, tt.replicas)
				if e = store.Diagnose(conn, err); e == nil {
					return fmt.Errorf("%w, which says nothing", err)
				}
				return nil
			})
			if !strings.Contains(e.Problem, tt.want) || e.Action == "" || e.Transient {
				t.Errorf("got %v, want %s", e, tt.want)
			}
		})
	}
}

// folderInUse is the error code of nats-server while it cannot make the folder of a stream
// (server/errors.json, JSStreamCreateErrF).
const folderInUse = 10049

// A stream that somebody else has made must neither lose records nor return old ones.
func TestOwnStreamThatDoesNotSuit(t *testing.T) {
	t.Parallel()
	addr := operate(t, ofOne)
	conn := client(t, External{URLs: []string{"nats://" + addr}})
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*jetstream.StreamConfig){
		"":              func(*jetstream.StreamConfig) {},
		"allow_direct":  func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"in memory":     func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"retention":     func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"subjects":      func(c *jetstream.StreamConfig) { c.Subjects = []string{"headgate.record.*"} },
		"let go":        func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"newest value":  func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = -1 },
		"discard: old":  func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew },
		"acknowledge":   func(c *jetstream.StreamConfig) { c.NoAck = true },
		"below 1 MB":    func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 },
		"let go of rec": func(c *jetstream.StreamConfig) { c.MaxBytes = 1000 },
	} {
		cfg := jetstream.StreamConfig{Name: "HEADGATE", Subjects: []string{"headgate.record.>"},
			MaxMsgsPerSubject: 1}
		change(&cfg)
		_, err := js.CreateStream(t.Context(), cfg)
		for e, ok := errors.AsType[*jetstream.APIError](err); ok && e.ErrorCode == folderInUse; {
			<-time.After(20 * time.Millisecond) // the previous folder is still being removed
			_, err = js.CreateStream(t.Context(), cfg)
			e, ok = errors.AsType[*jetstream.APIError](err)
		}
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		err = records(t.Context(), conn, 1)
		e, ok := errors.AsType[*store.UnusableError](err)
		if ok != (want != "") || ok && !strings.Contains(e.Problem, want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err := js.DeleteStream(t.Context(), "HEADGATE"); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that is too old is recognized by the first line that it sends.
func TestOwnThatIsTooOld(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.14.9": true, "2.9.25": true, "1.0.0": true, "2.15.0-RC.1": false, "2.15.0": false,
		"2.16.0": false, "3.0.0": false, "built by me": false,
	} {
		log := &book{}
		conn := client(t, External{URLs: []string{"nats://" + pretend(t, version)}, Look: store.TooOld,
			Log: slog.New(slog.NewTextHandler(log, nil))})
		connected(t, conn)
		e := store.Diagnose(conn, nil)
		said := "is " + version + ", and headgate needs 2.15.0"
		if (e != nil) != want || want && !strings.Contains(e.Problem, said) {
			t.Errorf("%s: got %v", version, e)
		}
		eventually(t, "said", func(context.Context) error {
			if said := log.String(); strings.Contains(said, "connected to NATS") &&
				strings.Contains(said, "NATS will not do") == want {
				return nil
			}
			return errors.New(log.String())
		})
	}
}

// pretend greets clients as a server of the given version would.
func pretend(t *testing.T, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "INFO {\"server_id\":\"x\",\"server_name\":\"old\",\"version\":%q,"+
				"\"headers\":true,\"max_payload\":1048576}\r\n", version)
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					if in.Text() == "PING" {
						fmt.Fprint(c, "PONG\r\n")
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
