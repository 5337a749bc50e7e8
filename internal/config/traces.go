package config

import (
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	defaultSample   = 0.01
	defaultEndpoint = "http://localhost:4318" // OTLP exporter specification, § Configuration Options
	tracesPath      = "/v1/traces"            // OTLP 1.x, § OTLP/HTTP Request
	maxTraceHeaders = 32                      // chosen: a collector needs one or two
)

// readTraces reads the group and fills what it leaves out from the environment. Variables alone do
// not switch tracing on, because platforms set them for all programs that they run.
func readTraces(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		t := &Traces{Paths: true}
		d.mapping(key, n, traceFields(t))
		t.fill(d, key, n)
		if len(t.Headers) > maxTraceHeaders {
			d.fault(key+".headers", n, wrong("a collector asks for one or two",
				"has %d headers, more than %d", len(t.Headers), maxTraceHeaders))
		}
		if os.Getenv("OTEL_SDK_DISABLED") == "true" {
			c.Warnings = append(c.Warnings, *d.place(key, spot{line: n.Line, column: n.Column},
				wrong("take the variable out of the environment to have traces",
					"is off, for the environment says OTEL_SDK_DISABLED")))
			return
		}
		c.Traces = t
	}
}

func traceFields(t *Traces) []field {
	return []field{
		one("endpoint", raw(&t.Endpoint, cleanCollector)),
		list("headers", &t.Headers, cleanTargetHeader),
		one("sample", raw(&t.Sample, cleanPart)),
		list("parents", &t.Parents, cleanPrefix),
		one("service", text(&t.Service, cleanTitle)),
		one("paths", truth(&t.Paths)),
	}
}

// fill takes from the environment what is not written in the file.
func (t *Traces) fill(d *decoder, key string, n *yaml.Node) {
	from := func(key string, read func(string) *mistake, names ...string) {
		if _, written := d.spots[key]; written {
			return
		}
		for _, name := range names {
			if said := os.Getenv(name); said != "" {
				if m := read(said); m != nil {
					m.problem = name + " of the environment stands in for it: " + m.problem
					d.fault(key, n, m)
				}
				return
			}
		}
	}
	t.Sample, t.Endpoint = t.ownSample(d, key), t.ownEndpoint(d, key)
	from(key+".endpoint", func(s string) (m *mistake) {
		if os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" { // it is a full URL: nothing is appended
			t.Endpoint, m = cleanEndpoint(s)
			return m
		}
		t.Endpoint, m = cleanCollector(s)
		return m
	}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	from(key+".sample", func(s string) (m *mistake) {
		t.Sample, m = cleanPart(s)
		return m
	}, "OTEL_TRACES_SAMPLER_ARG")
	from(key+".headers", t.readHeaders, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
}

func (t *Traces) ownSample(d *decoder, key string) float64 {
	if _, written := d.spots[key+".sample"]; written {
		return t.Sample
	}
	return defaultSample
}

func (t *Traces) ownEndpoint(d *decoder, key string) string {
	if _, written := d.spots[key+".endpoint"]; written {
		return t.Endpoint
	}
	return defaultEndpoint + tracesPath
}

// readHeaders parses name=value,name=value with URL-encoded values. A mistake does not contain the
// input: it may be a secret.
func (t *Traces) readHeaders(s string) *mistake {
	all := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(pair, "=")
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		clean, m := cleanTargetHeader(strings.TrimSpace(name) + ": " + plain)
		if !ok || err != nil || m != nil {
			return wrong("write name=value,name=value", "is not a list of headers")
		}
		all[clean] = clean
	}
	t.Headers = slices.Sorted(maps.Keys(all))
	return nil
}

// cleanPart parses a fraction from 0 to 1.
func cleanPart(s string) (float64, *mistake) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v <= 1) || strings.Trim(s, "0123456789.") != "" {
		return 0, wrong("write a number from 0 to 1, such as 0.01 for one of a hundred",
			"%s is not a part of all", quote(s))
	}
	return v, nil
}

// cleanCollector parses the base URL of a collector, to which the path of traces is added.
func cleanCollector(s string) (string, *mistake) {
	clean, m := cleanEndpoint(s)
	if m != nil || strings.HasSuffix(clean, tracesPath) {
		return clean, m
	}
	return strings.TrimSuffix(clean, "/") + tracesPath, nil
}

// cleanEndpoint parses a URL that is used unchanged. A mistake does not contain it: there may be a
// secret in it.
func cleanEndpoint(s string) (string, *mistake) {
	const hint = "write scheme, host and port, such as http://127.0.0.1:4318"
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "", wrong(hint, "is not the URL of a collector that takes OTLP over HTTP")
	case u.User != nil:
		return "", wrong(`take them out, and write headers: ["Authorization: …"]`, "has a user name or password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(s, "#"):
		return "", wrong("leave out what follows ? or #", "has more than a host and a path")
	case u.Port() == "4317":
		return "", wrong("write the port for HTTP, which is 4318 with most collectors",
			"has the port at which collectors take gRPC")
	}
	return s, nil
}
