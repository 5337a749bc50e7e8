package config

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// An Envoy says where Envoy's rate limit service is answered, and by which rules.
type Envoy struct {
	// Listen is the address, host:port, of gRPC. Required. It speaks plain HTTP/2: keep it
	// private.
	Listen string

	// Rules are files as envoyproxy/ratelimit has them, one for each domain. Required. A
	// path is that of the configuration's folder unless it is absolute.
	Rules []string

	// Headers tells Envoy to add RateLimit-Limit, -Remaining and -Reset to its answers.
	Headers bool
}

// maxRuleFiles bounds the files of rules. Chosen.
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
