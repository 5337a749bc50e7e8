package config

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/limittable"
)

// A limit in JSON is what it would be in the file.
func TestParseLimitIsWhatTheFileWouldBe(t *testing.T) {
	long := strings.Repeat("k", maxKeyLength) // the YAML library cannot read such a key in braces
	for _, text := range []string{
		`{"algorithm":"sliding_log","amount":100,"window":"60s","key":["header:x-client","path"]}`,
		"\t{ \"name\" : \"api\",\r\n\"algorithm\":\"fixed_window\",\"amount\":5,\"align\":\"day\"," +
			"\"time_zone\":\"Europe/Paris\",\"overrides\":{\"b\\u00f6b\":7,\"<<\":3,\"\U0001F600/\":9}}",
		`{"algorithm":"concurrency","amount":3,"lease":"10s","shadow":true,"scope":"worker"}`,
		`{"algorithm":"sliding_window","amount":0,"window":"1h","parts":12,"max_keys":10,"headers":"legacy"}`,
	} {
		l, err := ParseLimit("api", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		yaml := strings.Replace(strings.TrimSpace(text), "{", "{name: api,", 1)
		yaml = strings.Replace(yaml, `"name" : "api",`, "", 1)
		c, err := Parse("f", []byte("limits: [\n"+yaml+"]\n"))
		if err != nil {
			t.Fatalf("%s: %v", yaml, err)
		}
		if !reflect.DeepEqual(*l, c.Limits[0]) {
			t.Errorf("%s:\n%+v\nin the file:\n%+v", text, *l, c.Limits[0])
		}
	}
	const rule = `{"algorithm":"sliding_log","amount":1,"window":"1s","overrides":{%q:2,"\ud83d\ude00":3}}`
	l, err := ParseLimit("api", fmt.Appendf(nil, rule, long))
	if err != nil || l.Overrides[long] != 2 || l.Overrides["\U0001F600"] != 3 {
		t.Errorf("%v %v", l, err)
	}
}

// Faults have the key, the position and a hint.
func TestParseLimitTellsWhatIsWrong(t *testing.T) {
	const good = `"algorithm":"sliding_log","amount":1,"window":"1s"`
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	var plans strings.Builder
	plans.WriteString(`"p0":1`)
	for i := range maxPlans {
		plans.WriteString(fmt.Sprintf(`,"p%d":1`, i+1))
	}
	for _, c := range []struct{ name, text, want string }{
		{"api", ``, "0:0 the limit is empty; send one JSON object"},
		{"api", " \n", "the limit is empty; "},
		{"api", "null", "1:1 the limit is empty, not an object"},
		{"api", "[]", "1:1 the limit is a list, not an object"},
		{"api", `{"a":1`, "is not valid JSON: unexpected end of JSON input"},
		{"api", "{\n \"a\": x}", "2:7 the limit is not valid JSON: invalid character 'x'"},
		{"api", `{"a":1,}`, "1:8 the limit is not valid JSON"},
		{"api", `{} {}`, "1:4 the limit is not valid JSON: invalid character '{' after top-level value"},
		{"api", "amount: 100", "is not valid JSON"},
		{"api", "{\"a\xff\":1}", "is not UTF-8 text"},
		{"api", `{` + good + `,"key":` + deep + `}`, "is not valid JSON: it is nested too deep"},
		{"api", `{}`, "algorithm: is missing; add algorithm: sliding_log\n1:1 amount"},
		{"api", `{` + good + `,"amuont":2}`, "amuont: there is no such key; did you mean amount?"},
		{"api", `{` + good + `,` + "\n  " + `"origin":"x"}`,
			"2:3 origin: there is no such key; did you mean origin_target? origin belongs in a room"},
		{"api", `{` + good + `,"amount":2}`, "amount: is already set on line 1; keep one of the two"},
		{"api", `{"algorithm":"sliding_log","amount":"1","window":"1s"}`,
			`1:37 amount: "1" is text, not a number; take the quotes off: 1`},
		{"api", `{"algorithm":"sliding_log","amount":1e3,"window":"1s"}`, "amount: \"1e3\" is not a whole number"},
		{"api", `{"algorithm":"sliding_log","amount":-1,"window":"1s"}`, "amount: -1 is too small"},
		{"api", `{"algorithm":"sliding_log","amount":` + strings.Repeat("9", 5000) + `}`, "is too large"},
		{"api", `{"algorithm":"sliding_log","amount":null,"window":"1s"}`, "amount: has no value"},
		{"api", `{"algorithm":"sliding_log","amount":[1],"window":"1s"}`, "amount: is a list, not a single value"},
		{"api", `{"algorithm":"sliding_log","amount":1}`, "window: is missing"},
		{"api", `{"algorithm":"sliding_log","amount":1,"window":60}`, "1:48 window: \"60\" has no unit"},
		{"api", `{` + good + `,"burst":2}`, "burst: belongs to token_bucket and leaky_bucket, not to sliding_log"},
		{"api", `{` + good + `,"shadow":"true"}`, "shadow: \"true\" is neither true nor false"},
		{"api", `{` + good + `,"overrides":{"a":"x"}}`, `overrides.a: "x" is not a whole number`},
		{"api", `{` + good + `,"overrides":{"` + strings.Repeat("k", 1025) + `":1}}`, "a key of 1025 bytes"},
		{"api", `{` + good + `,"overrides":{"~plan:pro|bob":1}}`, "is the key of a caller with a plan"},
		{"api", `{` + good + `,"plans":{"a":"x"}}`, `plans.a: "x" is not a whole number`},
		{"api", `{` + good + `,"plans":{"a|b":1}}`, `plans."a|b": "a|b" is no name for a plan; take 1 to 32`},
		{"api", `{` + good + `,"plans":{"a":1,"a":2}}`, `plans.a: is already set on line 1`},
		{"api", `{` + good + `,"plans":["a"]}`, `plans: is a list, not a group`},
		{"api", `{` + good + `,"plans":{` + plans.String() + `}}`, `plans: has 101 plans, more than 100`},
		{"api", `{"algorithm":"concurrency","amount":1,"plans":{"pro":1048577}}`, `plans.pro: amount 1048577, want 0 to`},
		{"api", `{` + good + `,"key":"header:x"}`, "key: is text, not a list"},
		{"api", `{` + good + `,"name":"other"}`, `name: "other" is another name than "api"; leave it out`},
		{"a b", `{` + good + `}`, "name: "},
		{"a/b", `{` + good + `}`, "name: "},
		{"", `{` + good + `}`, "name: "},
		{strings.Repeat("n", 65), `{` + good + `}`, "name: "},
	} {
		_, err := ParseLimit(c.name, []byte(c.text))
		var got strings.Builder
		for _, f := range Faults(err) {
			got.WriteString(fmt.Sprintf("%d:%d %s; %s\n", f.Line, f.Column, f, f.Hint))
		}
		if !strings.Contains(got.String(), c.want) {
			t.Errorf("%q %.80q:\n%s\nwant %s", c.name, c.text, got.String(), c.want)
		}
	}
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf(`"x%d":1`, i)
	}
	_, err := ParseLimit("api", []byte("{"+good+","+strings.Join(many, ",")+"}"))
	if n := len(Faults(err)); n != maxFaults+1 {
		t.Errorf("%d faults told", n)
	}
}

// FuzzParseLimit checks that any input gives either a usable limit or faults with hints.
func FuzzParseLimit(f *testing.F) {
	f.Add("api", []byte(`{"algorithm":"sliding_log","amount":100,"window":"60s","key":["header:x","path"]}`))
	f.Add("api", []byte("{\n\"algorithm\":\"fixed_window\",\"align\":\"day\","+
		"\"overrides\":{\"\\u00e9\":1}, \"a\":[{}]}"))
	f.Add("api", []byte(`{"algorithm":"concurrency","amount":1,"plans":{"pro":5,"free":0}}`))
	f.Add("", []byte(`{"name":null,"amount":1e999,"parts":-0`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		l, err := ParseLimit(name, text)
		if err == nil {
			own := maps.Clone(l.Overrides)
			for plan, n := range l.Plans {
				if own == nil {
					own = map[string]int64{}
				}
				own[limittable.PlanKey(plan)] = n
			}
			_, err := limittable.Compile(l.Rule, own)
			if err != nil || l.Name != name || len(l.Plans) > maxPlans {
				t.Errorf("%q is a limit %q that cannot be used: %v", text, l.Name, err)
			}
			return
		}
		all := Faults(err)
		for _, x := range all {
			if x.Problem == "" || x.Hint == "" || x.Line < 0 || x.File != "" {
				t.Errorf("%q: %+v", text, x)
			}
		}
		if len(all) == 0 {
			t.Errorf("%q: %v", text, err)
		}
	})
}
