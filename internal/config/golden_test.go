package config

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGoldenFiles parses each testdata/*.yaml and compares its faults, or its values, with the .txt
// file of the same name. "go test" with -rewrite writes the .txt files again: read the diff.
func TestGoldenFiles(t *testing.T) {
	for _, file := range glob(t, "testdata/*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := Load(file)
			golden(t, strings.TrimSuffix(file, "yaml")+"txt", outcome(c, err))
		})
	}
}

// TestGoldenFlags does the same with the arguments in each testdata/*.args.
func TestGoldenFlags(t *testing.T) {
	for _, file := range glob(t, "testdata/*.args") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := ParseRun(strings.Fields(string(b)), io.Discard)
			golden(t, strings.TrimSuffix(file, "args")+"txt", outcome(c, err))
		})
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}

// rewriting reports whether -rewrite is among the arguments after -args.
func rewriting() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}

func TestMain(m *testing.M) {
	flag.Bool("rewrite", false, "write the golden files anew")
	for _, v := range os.Environ() { // ignore the variables of the machine that runs the test
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if rewriting() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// outcome formats a Config or its faults as lines of text.
func outcome(c *Config, err error) string {
	var b strings.Builder
	if err != nil {
		for _, f := range Faults(err) {
			fmt.Fprintf(&b, "%v\nhint: %s\n", f, f.Hint)
		}
		return b.String()
	}
	for i := range c.Warnings {
		fmt.Fprintf(&b, "warning: %v\nhint: %s\n", &c.Warnings[i], c.Warnings[i].Hint)
	}
	shown := *c
	shown.Warnings = nil
	show(&b, "", reflect.ValueOf(shown))
	return b.String()
}

// show writes one line for each value that is neither a struct nor a list of structs, and none for
// missing values.
func show(b *strings.Builder, name string, v reflect.Value) {
	switch x := v.Interface().(type) {
	case *url.URL:
		fmt.Fprintf(b, "%s: %s\n", name, x)
		return
	case fmt.Stringer:
		fmt.Fprintf(b, "%s: %s\n", name, x)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			show(b, name, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			show(b, strings.TrimPrefix(name+"."+v.Type().Field(i).Name, "."), v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			show(b, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case reflect.String:
		fmt.Fprintf(b, "%s: %q\n", name, v.Interface())
	default:
		fmt.Fprintf(b, "%s: %v\n", name, v.Interface())
	}
}
