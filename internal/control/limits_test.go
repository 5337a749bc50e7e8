package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
)

func TestDynamicLimitsAreBounded(t *testing.T) {
	set := dynamicSet{Limits: map[string]dynamicLimit{}}
	for i := range mostDynamic {
		set.Limits[fmt.Sprint("l", i)] = dynamicLimit{Rule: json.RawMessage(
			`{"algorithm":"concurrency","amount":1}`)}
	}
	if err := set.put("l1", &dynamicLimit{Rule: json.RawMessage("{}")}, 1); err != nil {
		t.Errorf("one of %d replaced: %v", mostDynamic, err)
	}
	var refused *api.RejectedError
	if err := set.put("more", &dynamicLimit{Rule: json.RawMessage("{}")}, 1); !errors.As(err, &refused) {
		t.Errorf("one more than %d: %v", mostDynamic, err)
	}
}

// A recreated store counts its revisions from the beginning. What is made after that is in force.
func TestARecordOfANewStoreIsTaken(t *testing.T) {
	newest := taken{revision: 900, newest: 50}
	for _, c := range []struct {
		revision, newest uint64
		want             bool
	}{{900, 50, false}, {901, 51, false}, {901, 40, false}, {899, 50, true}, {3, 0, true}, {3, 51, false}} {
		if got := newest.isAfter(c.revision, c.newest); got != c.want {
			t.Errorf("revision %d, version %d: older %v, want %v", c.revision, c.newest, got, c.want)
		}
	}
}

// A limit that was made before the key visit was called session is still in force.
func TestARecordWithTheKeyVisitIsRead(t *testing.T) {
	var set dynamicSet
	err := json.Unmarshal([]byte(`{"limits":{"l":{"rule":{"algorithm":"sliding_log","amount":7,"window":"60s",`+
		`"key":["header:visit","visit"]}}}}`), &set)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.ParseLimit("l", set.Limits["l"].Rule)
	want := []config.KeyPart{{Kind: config.KeyHeader, Name: "Visit"}, {Kind: config.KeySession}}
	if err != nil || c.Amount != 7 || !slices.Equal(c.Key, want) {
		t.Errorf("%+v, %v", c, err)
	}
}
