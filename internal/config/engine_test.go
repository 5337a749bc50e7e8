package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A seed and a JWT that no server knows.
const (
	someSeed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
	someJWT  = "-----BEGIN NATS USER JWT-----\neyJ0\n------END NATS USER JWT------\n\n" +
		"-----BEGIN USER NKEY SEED-----\n" + someSeed + "\n------END USER NKEY SEED------\n"
)

func TestEngineTakesEachKindOfCredentials(t *testing.T) {
	dir := clusterDir(t, time.Now()) // it has certificates
	for text, want := range map[string]CredentialKind{
		someJWT: CredentialJWT, someSeed + "\n": CredentialSeed, "me:secret: with more\n": CredentialPassword,
	} {
		file := filepath.Join(dir, "nats.creds")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := inDir(t, dir, "engine: {url: \"nats://h1\", credentials: nats.creds, ca: ca.pem, "+
			"cert: n1.pem, key: n1.key}\n")
		if err != nil {
			t.Fatal(err)
		}
		e := cfg.Engine
		if e.Kind != want || e.Credentials != file || e.Key != filepath.Join(dir, "n1.key") {
			t.Errorf("%s: got %+v", want, e)
		}
		if len(cfg.Warnings) > 0 || cfg.DrainDelay != clusterDrain {
			t.Errorf("warnings %v, drain_delay %v", cfg.Warnings, cfg.DrainDelay)
		}
		if said := fmt.Sprintf("%+v", e); strings.Contains(said, "secret") || strings.Contains(said, "SUA") {
			t.Errorf("credentials are printed: %s", said)
		}
		if want == CredentialPassword {
			user, password, err := ReadPassword(file)
			if user != "me" || password != "secret: with more" || err != nil {
				t.Errorf("got %q, %q, %v", user, password, err)
			}
		}
	}
}

func TestEngineRefusesFiles(t *testing.T) {
	dir, other := clusterDir(t, time.Now()), clusterDir(t, time.Now())
	for name, text := range map[string]string{"open": "me:secret", "two": "me:secret\nyou:secret",
		"word": "secret", "half": "me:", "short": "SUsecret"} {
		mode := os.FileMode(0o600)
		if name == "open" {
			mode = 0o640
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(other, "n1.key"), 0o640); err != nil {
		t.Fatal(err)
	}
	const unknown = "holds no credentials that are known"
	for keys, want := range map[string][2]string{
		"credentials: open":  {"engine.credentials: DIR/open: may be read by others (mode 640)", "chmod 600"},
		"credentials: two":   {"engine.credentials: DIR/two: " + unknown, "user:password"},
		"credentials: word":  {"engine.credentials: DIR/word: " + unknown, "user:password"},
		"credentials: half":  {"engine.credentials: DIR/half: " + unknown, "user:password"},
		"credentials: short": {"engine.credentials: DIR/short: " + unknown, "user:password"},
		"credentials: .":     {"engine.credentials: DIR: is not a plain file", "name a plain file"},
		"key: n1.key":        {"engine.key: stands without a certificate", "add cert"},
		"cert: n1.pem, key: " + other + "/n1.key": {"engine.key: " + other +
			"/n1.key: may be read by others (mode 640)", "chmod 600"},
		"cert: n1.pem, key: worker.key": {"engine.cert: DIR/n1.pem and DIR/worker.key: private key does not",
			"of one pair"},
	} {
		_, err := inDir(t, dir, "engine: {url: \"nats://127.0.0.1\", "+keys+"}\n")
		faults := Faults(err)
		if len(faults) != 1 {
			t.Errorf("%s: got %d faults: %v", keys, len(faults), err)
			continue
		}
		said, hint, problem := faults[0].Error(), faults[0].Hint, strings.ReplaceAll(want[0], "DIR", dir)
		if !strings.Contains(said, problem) || !strings.Contains(hint, want[1]) || faults[0].Line != 1 ||
			strings.Contains(said+hint, "secret") {
			t.Errorf("%s: got %s\nhint: %s", keys, said, hint)
		}
	}
}

func TestEngineWarnsOfWhatIsNotEncrypted(t *testing.T) {
	for url, want := range map[string]int{
		"nats://127.0.0.1,nats://localhost": 0, "nats://[::1]": 0, "tls://h1": 0, "nats://h1,tls://h2": 0,
		"nats://h1,nats://h2": 1,
	} {
		cfg, err := inDir(t, t.TempDir(), "engine: {url: \""+url+"\"}\n")
		if err != nil || len(cfg.Warnings) != want {
			t.Errorf("%s: got %v, %v; want %d warnings", url, cfg, err, want)
		}
	}
}
