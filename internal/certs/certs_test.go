package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/smallfile"
)

// pairOf is a certificate of its own making, and its key, as PEM.
func pairOf(t *testing.T, name string, from, to time.Time) (chain, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = encodeKey(k); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// pairFiles writes a pair that is good for 90 days.
func pairFiles(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "fullchain.pem"), filepath.Join(dir, "privkey.pem")
	c, k := pairOf(t, name, time.Now().Add(-time.Hour), time.Now().Add(90*24*time.Hour))
	write(t, certificate, c)
	write(t, key, k)
	return certificate, key
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatIsWrongWithAPair(t *testing.T) {
	now := time.Now()
	good, goodKey := pairFiles(t, "shop.example")
	other, otherKey := pairFiles(t, "shop.example")
	dir := t.TempDir()
	text := func(name, s string) string {
		path := filepath.Join(dir, name)
		write(t, path, []byte(s))
		return path
	}
	broken := strings.Replace(string(read(t, good)), "MII", "MIJ", 1)
	for _, c := range []struct{ name, certificate, key, want string }{
		{"no certificate", filepath.Join(dir, "none"), goodKey, "there is no such file"},
		{"no key", good, filepath.Join(dir, "none"), "there is no such file"},
		{"a folder", dir, goodKey, "is not a plain file"},
		{"swapped", goodKey, good, "holds no certificate"},
		{"no key in it", good, good, "holds no private key"},
		{"of another", good, otherKey, "private key does not match public key"},
		{"of another, turned round", other, goodKey, "private key does not match public key"},
		{"a password", good, text("locked", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n"+
			"-----END ENCRYPTED PRIVATE KEY-----\n"), "is protected by a password"},
		{"empty", text("empty", ""), goodKey, "holds no certificate"},
		{"huge", text("huge", strings.Repeat("x", smallfile.MaxSize+1)), goodKey, "is larger than 1 MB"},
		{"broken", text("broken", broken), goodKey, "x509: malformed"},
	} {
		_, err := ReadPair(c.certificate, c.key, now)
		e, ok := errors.AsType[*hint.Error](err)
		if !ok || !strings.Contains(err.Error(), c.want) || e.Hint() == "" {
			t.Errorf("%s: %v, want %q and a hint", c.name, err, c.want)
		}
	}
}

func TestWhatIsOddAboutAPairIsServedWithAWarning(t *testing.T) {
	certificate, key := pairFiles(t, "shop.example")
	day := 24 * time.Hour
	for _, c := range []struct {
		name string
		now  time.Time
		mode os.FileMode
		want string
	}{
		{"good", time.Now(), 0o600, ""},
		{"expired", time.Now().Add(91 * day), 0o600, "expired at"},
		{"not yet", time.Now().Add(-day), 0o600, "is not valid before"},
		{"nearly over", time.Now().Add(85 * day), 0o600, "expires at"},
		{"open key", time.Now(), 0o640, "may be read by others (mode 640)"},
	} {
		if err := os.Chmod(key, c.mode); err != nil {
			t.Fatal(err)
		}
		p, err := ReadPair(certificate, key, c.now)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		switch {
		case c.want == "" && len(p.Warnings) == 0:
		case len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0].Problem, c.want):
			t.Errorf("%s: %v, want %q", c.name, p.Warnings, c.want)
		}
	}
}

func served(t *testing.T, f *Files) string {
	t.Helper()
	c, err := f.Certificate(&tls.ClientHelloInfo{ServerName: "any.example"})
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf.DNSNames[0]
}

// In a bubble: each look comes after 10 s.
func TestNewFilesAreTakenUpAndBrokenOnesAreNot(t *testing.T) {
	certificate, key := pairFiles(t, "old.example")
	next, nextKey := pairFiles(t, "new.example")
	var log strings.Builder
	synctest.Test(t, func(t *testing.T) {
		f, err := OpenFiles(certificate, key, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		look := func(want string, good bool) {
			t.Helper()
			time.Sleep(lookEvery + time.Second)
			synctest.Wait()
			_, ok := f.States()
			if got := served(t, f); got != want || ok != good {
				t.Errorf("%s, %v: want %s, %v", got, ok, want, good)
			}
		}
		look("old.example", true)
		write(t, certificate, read(t, next)) // and the key not yet
		look("old.example", false)
		for range 10 {
			look("old.example", false)
		}
		if n := strings.Count(log.String(), "new certificate refused"); n != 1 {
			t.Errorf("told %d times, want once:\n%s", n, &log)
		}
		write(t, key, read(t, nextKey))
		look("new.example", true)
		write(t, certificate, nil) // cut off in the middle of a copy
		look("new.example", false)
		if err := f.Use(certificate, key); err == nil {
			t.Error("a reload must say so")
		}
		if err := os.Remove(certificate); err != nil {
			t.Fatal(err)
		}
		look("new.example", false)
		write(t, certificate, read(t, next))
		look("new.example", true)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestUseTakesOtherFilesOrChangesNothing(t *testing.T) {
	certificate, key := pairFiles(t, "old.example")
	next, nextKey := pairFiles(t, "new.example")
	f, err := OpenFiles(certificate, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Use(next, key); err == nil || served(t, f) != "old.example" {
		t.Errorf("%v, %s", err, served(t, f))
	}
	if err := f.Use(next, nextKey); err != nil || served(t, f) != "new.example" {
		t.Errorf("%v, %s", err, served(t, f))
	}
	if _, err := OpenFiles(certificate, nextKey, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("nothing to serve and no error")
	}
}

func TestTheFolderIsClosedToOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "certs", "issuer")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	v, err := OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(t.Context(), "x.pem"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want fs.ErrNotExist", err)
	}
	for _, text := range []string{"one", "two"} {
		if err := v.Put(t.Context(), "x.pem", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := v.Get(t.Context(), "x.pem"); string(b) != text || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
	all, err := os.ReadDir(path)
	if err != nil || len(all) != 1 {
		t.Errorf("%v, %v: want x.pem alone", all, err)
	}
	for name, want := range map[string]fs.FileMode{path: 0o700, filepath.Join(path, "x.pem"): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %o", name, info.Mode(), err, want)
		}
	}
}
