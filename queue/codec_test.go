package queue

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func FuzzChunk(f *testing.F) {
	var c chunker
	c.add(appendJob(nil, &Job{Key: "k", Tenant: "t", Priority: 9, Cost: 10, At: time.UnixMilli(5),
		MaxAge: time.Hour, Headers: map[string]string{"A": "b"}, Body: []byte("body")}))
	c.add(appendJob(nil, &Job{Cost: 1}))
	c.add(appendJob(nil, &Job{Cost: 1, OrderKey: "o"}))
	c.add(appendJob(nil, &Job{Cost: 1, OrderKey: "o", Headers: map[string]string{"A": "b"}}))
	f.Add(c.bytes())
	f.Add([]byte{chunkFormat, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		jobs, err := parseChunk(b)
		if err != nil {
			return
		}
		for _, raw := range jobs {
			j, ok := parseJob(raw)
			if !ok || len(j.Headers) > 1 { // several may have another order
				continue
			}
			again, ok := parseJob(appendJob(nil, &j))
			if !ok || !reflect.DeepEqual(j, again) {
				t.Fatalf("%+v became %+v", j, again)
			}
		}
	})
}

func FuzzNotes(f *testing.F) {
	f.Add(encodeNotes([]note{
		{kind: noteBegin, text: "n1"}, {kind: noteDone, ref: refOf(7, 3), done: []int{3}},
		{kind: noteTry, ref: refOf(8, 1), attempt: 2, at: 5, since: 6},
		{kind: noteDead, ref: refOf(8, 2), attempt: 20, at: 5, text: "why", code: 404},
		{kind: noteControl, paused: true, asked: askedRate{true, 50, 100}},
		{kind: notePurge, ref: refOf(6, 0)}, {kind: noteBeat}, {kind: noteEnd},
		{kind: noteRank, ref: refOf(8, 3), rank: 9}, {kind: noteTenant, text: "acme", paused: true},
		{kind: noteDone, ref: refOf(8, 3), done: []int{3}, event: eventDelivered, tried: 2, when: 7,
			code: 200},
		{kind: noteTry, ref: refOf(8, 3), attempt: 2, event: eventRetry, tried: 2, when: 7, code: 503,
			text: "no"},
		{kind: noteDead, ref: refOf(8, 4), attempt: 1, at: 5, ended: &ending{number: 2, ref: refOf(8, 4),
			at: 5, kind: eventDead, code: 404, attempt: 1, key: "k", order: "o", tenant: "t", why: "no"}},
		{kind: notePassed, ended: &ending{number: 1}},
		{kind: noteClaim, ref: refOf(8, 1), attempt: 3, at: 7, since: 6, until: 9, secret: secret{1, 2},
			text: "w1"},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		notes, err := parseNotes(b)
		if err != nil {
			return
		}
		old := newReplay()
		old.history = newHistory(100, time.Hour)
		for i := range notes {
			old.note(&notes[i])
		}
		once := encodeNotes(notes)
		again, err := parseNotes(once)
		if err != nil {
			t.Fatalf("written again they cannot be read: %v", err)
		}
		if twice := newReplay(); len(again) > 0 {
			twice.history = newHistory(100, time.Hour)
			for i := range again {
				twice.note(&again[i])
			}
			if !slices.EqualFunc(twice.history.events[twice.history.head:],
				old.history.events[old.history.head:], func(a, b event) bool {
					a.back, b.back = 0, 0
					return a == b
				}) ||
				!maps.Equal(twice.ranks, old.ranks) || !reflect.DeepEqual(twice.endings, old.endings) {
				t.Fatalf("%+v became %+v", old.history, twice.history)
			}
			if len(twice.dead) > len(old.dead) || len(twice.tries) > len(old.tries) ||
				len(twice.claims) > len(old.claims) {
				t.Fatalf("%d dead and %d tries became %d and %d", len(old.dead), len(old.tries),
					len(twice.dead), len(twice.tries))
			}
		}
	})
}

// A receipt is read as it was written, and other text is none.
func FuzzReceipt(f *testing.F) {
	f.Add(receipt(refOf(184, 5), &secret{1, 2, 3}))
	f.Add("184-5.AAAAAAAAAAAAAAAAAAAAAB")
	f.Add(".")
	f.Fuzz(func(t *testing.T, text string) {
		r, s, ok := parseReceipt(text)
		if !ok {
			return
		}
		again := receipt(r, &s)
		if r2, s2, ok := parseReceipt(again); !ok || r2 != r || s2 != s || len(again) > 64 {
			t.Fatalf("%q is read as %v %v, and written as %q", text, r, s, again)
		}
	})
}

func FuzzParseJob(f *testing.F) {
	f.Add([]byte(jobExample))
	f.Add([]byte(`{"text":"x","priority":3,"cost":2,"at":"2026-01-02T03:04:05Z","max_age":"1h","headers":{"a":"b"}}`))
	f.Add([]byte(`{"base64":"AAEC"}`))
	f.Add([]byte(`{"order_key":"o","headers":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := ParseJob(b)
		if err != nil {
			if !errors.Is(err, ErrJob) {
				t.Fatalf("%v is no ErrJob", err)
			}
			return
		}
		kept, ok := parseJob(appendJob(nil, &j))
		if !ok || kept.Key != j.Key || kept.Tenant != j.Tenant || kept.OrderKey != j.OrderKey ||
			kept.Cost != j.Cost ||
			kept.Priority != j.Priority || !bytes.Equal(kept.Body, j.Body) ||
			len(kept.Headers) != len(j.Headers) {
			t.Fatalf("%+v is kept as %+v", j, kept)
		}
	})
}

func TestBadJobsSayWhatIsWrong(t *testing.T) {
	for in, want := range map[string]string{
		``:                               "it is empty",
		`[1]`:                            "it may not be array; want such as {",
		` null`:                          "it is no object",
		`{"at": "tomorrow"}`:             "at is no time: write such as 20",
		`{"at": 5}`:                      "at is no time",
		`{"text": "a"} x`:                "something follows",
		`{"txt": "a"}`:                   `unknown field "txt"`,
		`{"text": 5}`:                    "text may not be number",
		`{"text": "a", "body": 1}`:       "keep one of them",
		`{"base64": "?"}`:                "base64 is not",
		`{"cost": 0}`:                    "the cost is 0",
		`{"cost": 2000000000000}`:        "want 1 to 2^40",
		`{"priority": 10}`:               "want 0 to 9",
		`{"max_age": "5"}`:               "max_age is no duration",
		`{"max_age": "-5s"}`:             "max_age is no duration",
		`{"at": "2999-01-01T00:00:00Z"}`: "ten years",
		`{"at": "1960-01-01T00:00:00Z"}`: "ten years",
		"{\"text\": \"\xff\"}":           "not UTF-8",
		`{"key": "` + strings.Repeat("k", MaxKey+1) + `"}`:             "257 bytes",
		`{"order_key": "` + strings.Repeat("k", MaxKey+1) + `"}`:       "order key is 257 bytes",
		`{"order_key": "a\nb"}`:                                        "the order key has characters",
		`{"tenant": "` + strings.Repeat("k", 129) + `"}`:               "129 bytes",
		`{"text": "` + strings.Repeat("k", MaxBody+1) + `"}`:           "store it elsewhere",
		`{"text": "` + strings.Repeat("k", 2*MaxLine) + `"}`:           "are the most",
		`{"headers": {"a": "` + strings.Repeat("k", MaxHeader) + `"}}`: "headers of",
	} {
		_, err := ParseJob([]byte(in))
		if err == nil || !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", in, err, want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.60s: the error is %d bytes long", in, len(err.Error()))
		}
	}
}

func TestABodyOfJSONSaysSo(t *testing.T) {
	for in, want := range map[string]string{
		`{"body": {"a": 1}}`: "application/json",
		`{"body": 1, "headers": {"content-type": "text/x"}}`: "",
		`{"text": "x"}`: "",
	} {
		j, err := ParseJob([]byte(in))
		if got := j.Headers["Content-Type"]; err != nil || got != want {
			t.Errorf("%s: got %q %v, want %q", in, got, err, want)
		}
	}
}
