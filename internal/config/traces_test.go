package config

import (
	"slices"
	"strings"
	"testing"
)

const tracedShop = "traces: {TRACES}\n" +
	"rooms: [{name: shop, origin: http://127.0.0.1:1, total_active_users: 1, new_users_per_minute: 1}]\n"

func traced(keys string) (*Config, error) {
	return Parse("f.yaml", []byte(strings.Replace(tracedShop, "TRACES", keys, 1)))
}

// What the file leaves out comes from the standard variables; the values of the file take
// precedence.
func TestTracesFromTheEnvironment(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:4318/")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b , x-team=web")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
	c, err := traced("")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Traces; got.Endpoint != "http://base:4318/v1/traces" || got.Sample != 0.25 ||
		!slices.Equal(got.Headers, []string{"Api-Key: a b", "X-Team: web"}) {
		t.Errorf("%+v", got)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:1/in")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b")
	if c, err = traced(""); err != nil {
		t.Fatal(err)
	}
	if got := c.Traces; got.Endpoint != "http://own:1/in" || !slices.Equal(got.Headers, []string{"A: b"}) {
		t.Errorf("%+v", got)
	}
	if c, err = traced(`endpoint: "http://file:2/v1/traces", sample: 0, headers: []`); err != nil {
		t.Fatal(err)
	}
	if got := c.Traces; got.Endpoint != "http://file:2/v1/traces" || got.Sample != 0 || len(got.Headers) != 0 {
		t.Errorf("%+v", got)
	}
}

// Variables alone do not switch tracing on, and one of them switches it off.
func TestTheEnvironmentAloneTracesNothing(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:4318/")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "nonsense")
	c, err := Parse("f.yaml", []byte(strings.Replace(tracedShop, "traces: {TRACES}\n", "", 1)))
	if err != nil || c.Traces != nil {
		t.Errorf("%v, %v", c, err)
	}
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if c, err = traced(""); err != nil || c.Traces != nil || len(c.Warnings) != 1 ||
		!strings.Contains(c.Warnings[0].Error(), "OTEL_SDK_DISABLED") {
		t.Errorf("%+v, %v", c, err)
	}
}

// An invalid variable is a mistake that names the variable, but not its value if that is a secret.
func TestWrongVariablesAreMistakes(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:secret@base")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "secret")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "often")
	_, err := traced("")
	faults := Faults(err)
	if len(faults) != 3 || strings.Contains(err.Error(), "secret") {
		t.Fatalf("%v", err)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS",
		"OTEL_TRACES_SAMPLER_ARG"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
	if faults[0].Line != 1 {
		t.Errorf("line %d", faults[0].Line)
	}
}
