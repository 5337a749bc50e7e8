package manage

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// encoding/json reads an accepted body the same way, and the body has no duplicate names.
func FuzzBody(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a": [1, "x", null, true, {"b": 1e3}]}`, `{"a": 1, "a": 2}`, "[1] 2",
		`{"a": `, strings.Repeat("[", 40) + strings.Repeat("]", 40), "\xff", `{"\u0061": 1, "a": 2}`,
		`{"name": "shop", "host": "shop.example", "total_active_users": 200, "new_users_per_minute": 200}`} {
		f.Add([]byte(s))
	}
	var plain func(v any) any
	plain = func(v any) any {
		switch v := v.(type) {
		case *object:
			m := map[string]any{}
			for _, name := range v.names {
				m[name] = plain(v.members[name])
			}
			return m
		case []any:
			all := make([]any, len(v))
			for i := range v {
				all[i] = plain(v[i])
			}
			return all
		}
		return v
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := parse(body)
		if err != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatalf("%q is taken: %v", body, err)
		}
		if got := plain(v); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %#v, want %#v", body, got, want)
		}
		ReadPreview(body) // must not panic on any input
	})
}
