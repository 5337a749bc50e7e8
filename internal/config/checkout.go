package config

import (
	"time"

	"go.yaml.in/yaml/v4"
)

// A Checkout configures what a room does for the pages on which a visitor pays.
type Checkout struct {
	// Pass adds a signed pass to each request of a session that goes to the origin, in the header
	// Headgate-Pass. Default false.
	Pass bool

	// GracePaths are paths that keep a session open: it does not end within Grace of a request for
	// one of them. A path that ends with a slash or a star matches everything that begins like it;
	// any other path matches only itself.
	GracePaths []string

	// Grace is the time that GracePaths grant. 1 second to 1 day, default 10 minutes.
	Grace time.Duration

	// Warn is how long before the end of a session its pages show a warning. 0, the default, is
	// never.
	Warn time.Duration
}

// DefaultGrace is the default of Checkout.Grace: long enough to pay for a visitor who has to find a
// card first. Chosen.
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
