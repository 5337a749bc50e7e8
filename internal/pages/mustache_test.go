package pages

import "testing"

func TestTemplatesAreRendered(t *testing.T) {
	values := map[string]any{"waitTime": int64(10), "waitTimeFormatted": "<10>", "queueAll": true,
		"queueIsFull": false}
	for source, want := range map[string]string{
		"{{waitTime}} {{ queueAll }}":                                    "10 true",
		"{{waitTimeFormatted}}":                                          "&lt;10&gt;",
		"{{{waitTimeFormatted}}} {{&waitTimeFormatted}}":                 "<10> <10>",
		"a{{! {{ a comment }}b":                                          "ab",
		"{{#queueAll}}a{{^queueIsFull}}b{{/queueIsFull}}c{{/queueAll}}d": "abcd",
		"{{^queueAll}}a{{#queueIsFull}}b{{/queueIsFull}}c{{/queueAll}}d": "d",
		// A line with nothing but a section on it goes away (mustache(5), standalone lines).
		"a\n  {{#queueAll}}  \nb\n  {{/queueAll}}\nc": "a\nb\nc",
		"a {{#queueAll}}\nb{{/queueAll}}":             "a \nb",
	} {
		out := bounded{left: 100}
		if err := write(&out, compile(source), values); err != nil || string(out.dst) != want {
			t.Errorf("%q: %q, %v, want %q", source, out.dst, err, want)
		}
	}
	out := bounded{left: 3}
	if err := write(&out, compile("{{waitTimeFormatted}}"), values); err == nil {
		t.Errorf("%q is more than 3 bytes", out.dst)
	}
}
