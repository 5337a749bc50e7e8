package join

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/keypair"
)

// validity checks a certificate against the clock.
func validity(c *x509.Certificate, now time.Time, renew string) *Fault {
	switch when, text := keypair.At(c, now, 0); when {
	case keypair.Over:
		return fault(renew, "%s", text)
	case keypair.Early:
		return fault("check the clock of this machine", "%s", text)
	}
	return nil
}

// CheckCA checks the PEM of the CA of another data center; nil means it is valid. It must be
// limited to the names of that data center, as headgate cluster init makes it, so that it is
// trusted for nothing else.
func CheckCA(b []byte, datacenter string, now time.Time) *Fault {
	hint := "copy the ca.pem that headgate cluster init has made for " + datacenter
	some := false
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fault(hint, "holds more than certificates")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return fault(hint, "holds no certificate that can be read")
		case !c.IsCA:
			return fault(hint, "holds the certificate of %s, which is no CA", quote(c.Subject.CommonName))
		case !slices.Equal(c.PermittedDNSDomains, []string{domainOf(datacenter)[1:]}):
			return fault(hint, "is not the CA of the data center %s, but of %s",
				datacenter, quote(c.Subject.CommonName))
		}
		const renew = "make a new cluster there with headgate cluster init, and copy its ca.pem"
		if f := validity(c, now, renew); f != nil {
			return f
		}
		some = true
	}
	if !some {
		return fault(hint, "holds no certificate")
	}
	return nil
}
