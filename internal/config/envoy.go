package config

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// An Envoy configures the rate limit service for Envoy and its rules.
type Envoy struct {
	// Listen is the address, host:port, of the gRPC service. Required. It serves plain HTTP/2: keep
	// it private.
	Listen string

	// Rules are files in the format of envoyproxy/ratelimit, one for each domain. Required. A
	// relative path starts at the folder of the configuration file.
	Rules []string

	// Headers makes Envoy add RateLimit-Limit, -Remaining and -Reset to its answers.
	Headers bool
}

// maxRuleFiles bounds the number of rule files. Chosen.
const maxRuleFiles = 1000

func readEnvoy(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		e := &Envoy{}
		c.Envoy = e
		d.mapping(key, n, []field{
			required("listen", "127.0.0.1:8082", raw(&e.Listen, cleanListen)),
			{name: "rules", read: readRuleFiles(&e.Rules), example: "[ratelimit.yaml]"},
			one("headers", truth(&e.Headers)),
		})
	}
}

func readRuleFiles(dst *[]string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		before := len(d.faults)
		for key, item := range d.items(key, n) {
			var name string
			if d.scalar(key, item, text(&name, cleanRuleFile)) {
				*dst = append(*dst, d.beside(name))
			}
		}
		switch {
		case len(d.faults) > before:
		case len(*dst) == 0:
			d.fault(key, n, wrong("name at least one file of rules: [ratelimit.yaml]", "has no file"))
		case len(*dst) > maxRuleFiles:
			d.fault(key, n, wrong("put several domains' services apart", "has %d files, more than %d",
				len(*dst), maxRuleFiles))
		}
	}
}

func cleanRuleFile(s string) (string, *mistake) {
	if strings.TrimSpace(s) == "" {
		return "", wrong("write the path of a file, such as ratelimit.yaml", "is empty")
	}
	return s, nil
}
