package rules

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// TestErrors compiles each expression of testdata/errors.txt, which are parted by lines of ---,
// and compares what is said with what stands there below "→". Go test with -args -rewrite writes
// it anew: read the diff.
func TestErrors(t *testing.T) {
	const file = "testdata/errors.txt"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for part := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n---\n"), "\n---\n") {
		expression, _, _ := strings.Cut(part, "\n→\n")
		_, err := Compile(expression, Env{Lists: lists(t)})
		if err == nil {
			t.Errorf("no error in %s", expression)
			continue
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%T in %s", err, expression)
		}
		fmt.Fprintf(&got, "%s\n→\n%s\n---\n", expression, err)
	}
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(b), got.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestLimits has what is too long or too much to be written into testdata/errors.txt.
func TestLimits(t *testing.T) {
	for name, tt := range map[string]struct{ expression, want string }{
		"length":  {"true or " + strings.Repeat(" ", maxLength) + "true", "1:4097: longer than 4096"},
		"parens":  {strings.Repeat("(", 100) + "ssl", "1:51: nested deeper than 50"},
		"nots":    {strings.Repeat("not ", 100) + "ssl", "1:201: nested deeper than 50"},
		"bangs":   {strings.Repeat("!", 4000), "1:51: nested deeper than 50"},
		"calls":   {strings.Repeat("lower(", 100) + "http.host", "nested deeper than 50"},
		"hashes":  {"http.host == r" + strings.Repeat("#", 256) + `"x"`, "1:14: too many #"},
		"utf-8":   {"http.host == \"\xff\"", "not UTF-8"},
		"repeats": {`http.host matches "((a{100}){100}){100}"`, "invalid repeat count"},
		"product": {`http.host matches "a{600}b{600}"`, "a regexp of more than 1000 steps"},
		"words":   {`http.host matches "(` + words(150) + `x)"`, "a regexp of more than 1000 steps"},
		"more":    {`http.host matches "a{1001}"`, "invalid repeat count"},
		"classes": {`http.host matches "` + strings.Repeat(`\\pL`, 20) + `{999}{999}"`, ""},
	} {
		_, err := Compile(tt.expression, Env{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && utf8.RuneCountInString(err.Error()) > 400 {
			t.Errorf("%s: an error of %d characters", name, utf8.RuneCountInString(err.Error()))
		}
	}
	for name, expression := range map[string]string{
		"length": "true or " + strings.Repeat(" ", maxLength-12) + "true",
		"depth":  strings.Repeat("(", 49) + "ssl" + strings.Repeat(")", 49),
		"chain":  strings.Repeat("ssl or ", 584) + "ssl",
		"hashes": "http.host == r" + strings.Repeat("#", 255) + `"x"` + strings.Repeat("#", 255),
		"words":  `http.host matches "(` + words(90) + `x)"`,
	} {
		if _, err := Compile(expression, Env{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// words are so many of ten letters that have no beginning in common, with a bar behind each.
func words(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteRune(rune('\u4e00' + i))
		b.WriteString("abcdefghi|")
	}
	return b.String()
}
