package numbers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// pieces writes text in pieces of n bytes.
func pieces(w io.Writer, text string, n int) {
	for b := []byte(text); len(b) > 0; {
		k := min(n, len(b))
		_, _ = w.Write(b[:k])
		b = b[k:]
	}
}

func TestPathsAreFound(t *testing.T) {
	for _, c := range []struct {
		text  string
		path  string
		value int64
		found bool
		err   error
	}{
		{`{"usage": {"total_tokens": 21}}`, "usage.total_tokens", 21, true, nil},
		{`{"max_tokens": 4096}`, "max_tokens", 4096, true, nil},
		{`{"MAX_Tokens": 4096}`, "max_tokens", 4096, true, nil},
		{`{"max\u005ftokens": 4096}`, "max_tokens", 4096, true, nil},
		{`{"max_tokens": 1, "max_tokens": 9, "max_tokens": 2}`, "max_tokens", 9, true, nil},
		{`{"a": [{"max_tokens": 9}], "b": {"max_tokens": 8}}`, "max_tokens", 0, false, nil},
		{`[{"max_tokens": 9}]`, "max_tokens", 0, false, nil},
		{`{"s": "\"max_tokens\": 9, {", "max_tokens": 3}`, "max_tokens", 3, true, nil},
		{`{"a": [1, [2, {"b": 3}]], "usage": {"x": {}, "n": 7}, "z": null}`, "usage.n", 7, true, nil},
		{`{"usage": null}` + "\n" + `{"usage": {"n": 5}}` + "\n", "usage.n", 5, true, nil}, // x-ndjson
		{`{"usage": {"n": 12.0}}`, "usage.n", 12, true, nil},
		{`{"usage": {"n": 1.2e1}}`, "usage.n", 12, true, nil},
		{`{"usage": {"n": 12.5}}`, "usage.n", 0, false, ErrNumber},
		{`{"usage": {"n": -3}}`, "usage.n", 0, false, ErrNumber},
		{`{"usage": {"n": 99999999999999999999}}`, "usage.n", 0, false, ErrNumber},
		{`{"usage": {"n": ` + strings.Repeat("1", 10_000) + `}}`, "usage.n", 0, false, ErrNumber},
		{`{"usage": {"n": "12"}}`, "usage.n", 0, false, ErrNumber},
		{`{"usage": {"n": [12]}}`, "usage.n", 0, false, ErrNumber},
		{`{"usage": {"n": true}}`, "usage.n", 0, false, ErrNumber},
		{`{"usage": {"n": {"n": 12}}}`, "usage.n", 0, false, ErrNumber},
		{`{"usage": {"n": null}}`, "usage.n", 0, false, nil},
		{`{"usage.n": 12}`, "usage.n", 0, false, nil},
		{`<html>`, "usage.n", 0, false, ErrSyntax},
		{`{"n": 1]`, "n", 1, true, ErrSyntax},
		{`}`, "n", 0, false, ErrSyntax},
		{`{"a": ` + strings.Repeat(`[{"n":`, 100) + "1" + strings.Repeat("}]", 100) + `, "n": 2}`, "n", 2, true, nil},
		{strings.Repeat(`{"n":`, 100) + "1" + strings.Repeat("}", 100), "n", 0, false, ErrNumber},
		{``, "n", 0, false, nil},
	} {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			s := NewScanner("other.path", c.path)
			pieces(s, c.text, size)
			s.End()
			if n, ok := s.Value(1); n != c.value || ok != c.found || !errors.Is(s.Err(), c.err) {
				t.Errorf("%.60s in pieces of %d: %d, %v, %v", c.text, size, n, ok, s.Err())
			}
		}
	}
}

func TestEventsOfAStream(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		text := strings.ReplaceAll(`event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}

: a comment
id: 1
data:{"type":"content_block_delta",
data:  "delta":{"text":"data: {"}}

data: no JSON

data: {"open": {

data: {"type":"message_delta","usage":{"output_tokens":15}}

data

datum: {"usage":{"output_tokens":99}}

data: [DONE]

`, "\n", end)
		for i, size := range []int{1, 3, 10, 1 << 20, 1, 2, 1 << 20} {
			s := Stream{Scanner: NewScanner("message.usage.input_tokens", "usage.output_tokens")}
			if i > 3 { // with a byte order mark, also with a broken one
				pieces(&s, []string{"\ufeff", "\ufeff", "\ufeff\n"}[i-4], size)
			}
			pieces(&s, text, size)
			s.End()
			in, ok1 := s.Value(0)
			out, ok2 := s.Value(1)
			if in != 25 || out != 15 || !ok1 || !ok2 || s.Events != 5 || s.Since != 0 {
				t.Errorf("%q, pieces of %d: %d %v, %d %v, %d events", end, size, in, ok1, out, ok2, s.Events)
			}
		}
	}
	s := Stream{Scanner: NewScanner("n")}
	pieces(&s, "data: {\"n\": 3}", 4) // cut off before the line ends
	if s.End(); s.Events != 1 {
		t.Error(s.Events)
	}
	if n, ok := s.Value(0); n != 3 || !ok {
		t.Error(n, ok)
	}
	s = Stream{Scanner: NewScanner("n")}
	pieces(&s, "data: {\"n\": 12", 4) // of 12345, perhaps
	s.End()
	if n, ok := s.Value(0); ok || s.Events != 1 {
		t.Errorf("a number that is cut off counts as %d; %d events", n, s.Events)
	}
}

// greatest finds the greatest number at a path as encoding/json reads a document, and whether all of them
// are numbers that a Scanner takes.
func greatest(d *json.Decoder, path []string, at int, most *int64, found, good *bool) error {
	tok, err := d.Token()
	if err != nil {
		return err
	}
	switch x := tok.(type) {
	case json.Number:
		if at == len(path) {
			n, err := parse(x.String())
			*good = *good && err == nil && len(x) <= mostKey
			if err == nil && len(x) <= mostKey {
				*most, *found = max(*most, n), true
			}
		}
	case string, bool:
		*good = *good && at != len(path)
	case json.Delim:
		*good = *good && at != len(path)
		for d.More() {
			next := -1 << 20
			if x == '{' {
				key, err := d.Token()
				if err != nil {
					return err
				}
				if k := key.(string); at >= 0 && at < len(path) && strings.EqualFold(k, path[at]) {
					next = at + 1
				}
			}
			if err := greatest(d, path, next, most, found, good); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// FuzzScanner: of a valid document a Scanner finds what encoding/json finds, in pieces of any size. It
// survives all others, within its bounds.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{"a":{"b":3}}`, `{"a":{"b":1},"a":{"b":2}}`, `{"\u0061":{"B":1e2}}`, `[{"a":{"b":9}}]`,
		`{"a":{"b":"x\\\"y"},"c":[true,null,-1.5]}`, `{"a":[{"b":1}],"a":{"b":4}}`, `"a"`, `7`} {
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		s := NewScanner("a.b")
		pieces(s, text, 1+size&15)
		s.End()
		if cap(s.token) > 4*mostKey {
			t.Fatalf("%d bytes kept", cap(s.token))
		}
		n, ok := s.Value(0)
		if !json.Valid([]byte(text)) {
			return
		}
		var most int64
		found, good := false, true
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.UseNumber()
		if err := greatest(d, []string{"a", "b"}, 0, &most, &found, &good); err != nil {
			t.Fatal(err)
		}
		if n != most || ok != found || (s.Err() == nil) != good {
			t.Errorf("%q: %d %v %v, want %d %v %v", text, n, ok, s.Err(), most, found, good)
		}
	})
}

// FuzzStream: the data of an event counts once, in pieces of any size.
func FuzzStream(f *testing.F) {
	f.Add("event: x\ndata: {\"a\":{\"b\":3}}\n\n", 1)
	f.Add("\ufeffdata: {\"a\":3}\n\n", 2)
	f.Add("\xef\xbbdata: 1\n", 1)
	f.Add("data: {\"a\":\r\ndata: {\"b\":3}}\r\n\r\n", 2)
	f.Fuzz(func(t *testing.T, text string, size int) {
		want := ""
		for _, size := range []int{1 << 20, 1, 1 + size&15} {
			s := Stream{Scanner: NewScanner("a.b")}
			pieces(&s, text, size)
			s.End()
			n, ok := s.Value(0)
			got := fmt.Sprint(n, ok, s.Events, s.Since, s.Err())
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%q in pieces of %d: %s, want %s", text, size, got, want)
			}
		}
	})
}

func BenchmarkScanner(b *testing.B) {
	text := []byte(`{"choices":[{"text":"` + strings.Repeat("lorem ipsum ", 1000) + `"}],"usage":{"total_tokens":21}}`)
	b.SetBytes(int64(len(text)))
	s := NewScanner("usage.total_tokens")
	for b.Loop() {
		s.Next()
		_, _ = s.Write(text)
	}
}
