package headgate

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestKeysDocumented: the table of keys in docs/operations.md names exactly the keys that apps get.
func TestKeysDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| key of `headgate` | meaning |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for row := range strings.Lines(table) {
		names := strings.Split(row, "|")[1]
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(names, -1) {
			documented = append(documented, m[1])
		}
	}
	var answer struct {
		Headgate map[string]any `json:"headgate"`
	}
	if err := json.Unmarshal(new(View).appendJSON(nil), &answer); err != nil {
		t.Fatal(err)
	}
	keys := slices.Sorted(maps.Keys(answer.Headgate))
	if slices.Sort(documented); !slices.Equal(keys, documented) {
		t.Errorf("keys of headgate in docs/operations.md:\n%v\nwant\n%v", documented, keys)
	}
}
