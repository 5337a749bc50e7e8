package api

import (
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/limit"
)

// Accepted bodies are read the same by encoding/json, and are within bounds.
func FuzzLimitCheck(f *testing.F) {
	for _, s := range []string{
		`{"limit":"api","key":"bob","cost":1}`, `[{"limit":"api"},{"limit":"b","cost":-3}]`, `[]`, `{}`,
		`{"limit":"api"}{}`, `[[[[[[`, `{"limit":{"limit":"api"}}`, `{"cost":1e99}`,
		`{"limit":"a","limit":"b"}`,
		`{"limit":"a","ttl_seconds":0.5,"reservation":"18446744073709551615"}`,
		"{\"limit\":\"\xff\"}", `null`, `{"limit":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	fields := []string{"limit", "key", "cost", "reservation", "ttl_seconds"}
	f.Fuzz(func(t *testing.T, body []byte) {
		asks, array, err := parseAsks(body, fields)
		if err != nil {
			p, ok := err.(*problem)
			if !ok || p.Code == "" || p.Detail == "" || p.Hint == "" || p.Status < 400 {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		type slow struct {
			Limit, Key string
			Cost       *int64
			TTL        any `json:"ttl_seconds"`
			ID         any `json:"reservation"`
		}
		var want []slow
		if array {
			err = json.Unmarshal(body, &want)
		} else {
			want = make([]slow, 1)
			err = json.Unmarshal(body, &want[0])
		}
		if err != nil || len(want) != len(asks) || len(asks) == 0 || len(asks) > maxAsks {
			t.Fatalf("%q: %d asks, want %d: %v", body, len(asks), len(want), err)
		}
		for i, a := range asks {
			cost := int64(1)
			if want[i].Cost != nil {
				cost = *want[i].Cost
			}
			if a.Limit == "" || a.Limit != want[i].Limit || a.Key != want[i].Key || a.Cost != cost ||
				a.Cost > limit.MaxAmount || a.Cost < -limit.MaxAmount || a.ttl <= 0 || a.ttl > maxReserved ||
				(want[i].ID != nil) != (a.id != 0) {
				t.Fatalf("%q: %+v, want %+v", body, a, want[i])
			}
		}
	})
}
