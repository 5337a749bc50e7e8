package api

import (
	"net/url"
	"testing"
	"time"
)

// A request in the first second of a minute includes that minute.
func TestTheMinuteThatHasJustBegunIsInTheRange(t *testing.T) {
	now := time.Unix(864_000, 500) // a minute begins, and also five minutes
	for query, want := range map[string]int64{"": 864_300, "from=-1h": 864_060,
		"step=1m&from=-1h": 864_060, "to=864000": 864_000, "to=864001": 864_300} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		q := &pastQuery{format: "json"}
		if err := q.timesOf(values, now); err != nil || q.To != want {
			t.Errorf("%q: until %d, want %d, %v", query, q.To, want, err)
		}
	}
}
