package join

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"
)

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
		case now.After(c.NotAfter):
			return fault("make a new cluster there with headgate cluster init, and copy its ca.pem",
				"is over since %s", c.NotAfter.UTC().Format(time.RFC3339))
		case now.Before(c.NotBefore):
			return fault("check the clock of this machine", "is not valid before %s",
				c.NotBefore.UTC().Format(time.RFC3339))
		}
		some = true
	}
	if !some {
		return fault(hint, "holds no certificate")
	}
	return nil
}
