package config

import (
	"time"

	"go.yaml.in/yaml/v4"
)

// A Checkout says what a room does for the pages on which a visitor pays.
type Checkout struct {
	// Pass lets each request of a visit carry a signed pass to the origin, in the header
	// Headgate-Pass. Default false.
	Pass bool

	// GracePaths are paths on which a visit does not end within Grace of a request. One that ends
	// with a slash or a star stands for all that begin like it; any other stands for itself alone.
	GracePaths []string

	// Grace is how long. 1 second to 1 day, default 10 minutes.
	Grace time.Duration

	// Warn is how long before its end a visit's pages warn. 0, the default, is never.
	Warn time.Duration
}

// DefaultGrace is what Checkout.Grace is when nothing is written: as long as people take to pay who
// look for their card first. Chosen.
const DefaultGrace = 10 * time.Minute

func readCheckout(c *Checkout) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		d.mapping(key, n, checkoutFields(c))
		if len(c.GracePaths) > 0 && c.Grace == 0 {
			c.Grace = DefaultGrace
		}
		if c.Grace > 0 && len(c.GracePaths) == 0 && d.good(key+".grace_paths", key+".grace_paths[0]") {
			d.fault(key, n, wrong("name the paths of the checkout: grace_paths: [/checkout/]",
				"has a grace, and no grace_paths"))
		}
	}
}

func checkoutFields(c *Checkout) []field {
	return []field{
		one("pass", truth(&c.Pass)),
		list("grace_paths", &c.GracePaths, cleanExcludedPath),
		one("grace", span(&c.Grace, time.Second, day, false)),
		one("warn", span(&c.Warn, time.Second, day, true)),
	}
}
