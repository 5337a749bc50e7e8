package keypair

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// pair returns a certificate and its key, valid for a day from a moment on.
func pair(t *testing.T, from time.Time, uses ...x509.ExtKeyUsage) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop.example"},
		NotBefore: from, NotAfter: from.AddDate(0, 0, 1), ExtKeyUsage: uses}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func TestParseSaysWhichOfBothIsWrong(t *testing.T) {
	certificate, key := pair(t, time.Now())
	_, other := pair(t, time.Now())
	torn := []byte(strings.Replace(string(certificate), "MII", "MIJ", 1))
	locked := []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n")
	for _, tt := range []struct {
		name             string
		certificate, key []byte
		inKey            bool
		want             string // "": nothing is wrong
	}{
		{"good", certificate, key, false, ""},
		{"swapped", key, certificate, false, "holds no certificate"},
		{"no key", certificate, certificate, true, "holds no private key"},
		{"locked", certificate, locked, true, "is protected by a password"},
		{"of another", certificate, other, true, "private key does not match public key"},
		{"torn", torn, key, false, "x509: malformed"},
	} {
		got, f := Parse(tt.certificate, tt.key)
		if tt.want == "" {
			if f != nil || got.Leaf == nil {
				t.Errorf("%s: %+v", tt.name, f)
			}
			continue
		}
		if f == nil || f.InKey != tt.inKey || !strings.Contains(f.Problem, tt.want) || f.Hint == "" {
			t.Errorf("%s: %+v, want %q, in the key: %t", tt.name, f, tt.want, tt.inKey)
		}
	}
}

func TestAt(t *testing.T) {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p, f := Parse(pair(t, begun))
	if f != nil {
		t.Fatal(f)
	}
	for _, tt := range []struct {
		after time.Duration
		when  Time
		want  string
	}{
		{-time.Second, Early, "is not valid before 2026-03-01T12:00:00Z"},
		{time.Hour, Valid, ""},
		{23 * time.Hour, Ending, "expires at 2026-03-02T12:00:00Z"},
		{25 * time.Hour, Over, "expired at 2026-03-02T12:00:00Z"},
	} {
		if when, text := At(p.Leaf, begun.Add(tt.after), 2*time.Hour); when != tt.when || text != tt.want {
			t.Errorf("%v after it begins: %d, %q; want %d, %q", tt.after, when, text, tt.when, tt.want)
		}
	}
}

func TestIsFor(t *testing.T) {
	const server, client = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for _, tt := range []struct {
		uses []x509.ExtKeyUsage
		want bool
	}{
		{nil, true}, {[]x509.ExtKeyUsage{client}, false}, {[]x509.ExtKeyUsage{client, server}, true},
		{[]x509.ExtKeyUsage{x509.ExtKeyUsageAny}, true},
	} {
		p, f := Parse(pair(t, time.Now(), tt.uses...))
		if f != nil {
			t.Fatal(f)
		}
		if got := IsFor(p.Leaf, server); got != tt.want {
			t.Errorf("for %v: for a server: %t", tt.uses, got)
		}
	}
}
