package manage

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The audit log names only the rules that a change has changed.
func TestAChangeOfRulesIsSaidByRule(t *testing.T) {
	list := func(texts string) []*Rule {
		var all []*Rule
		for x := range strings.FieldsSeq(texts) {
			all = append(all, &Rule{ID: x, Action: actionDeny, Expression: x, Enabled: true})
		}
		return all
	}
	said := func(was, is []*Rule) (before, after map[string]string) {
		c := &Change{What: RuleList}
		for to, all := range map[*json.RawMessage][]*Rule{&c.Before: was, &c.After: is} {
			b, err := json.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			*to = b
		}
		return c.Differences()
	}
	for _, x := range []struct{ was, is, before, after string }{
		{"a b c", "a b c", "", ""},
		{"a b", "a b c", "", "rule 3=c"},
		{"a b c", "b c", "rule 1=a", ""},
		{"a b c", "a x c", "rule 2=b", "rule 2=x"},
		{"a b c d", "a c b d", "rule 2=b rule 3=c", "rule 2=c rule 3=b"},
		{"", "a", "", "rule 1=a"},
		{"a a", "a a a", "", "rule 3=a"},
		{"a b c d e f g", "", "more rules=2 rule 1=a rule 2=b rule 3=c rule 4=d rule 5=e", ""},
	} {
		before, after := said(list(x.was), list(x.is))
		for _, side := range []struct {
			got  map[string]string
			want string
		}{{before, x.before}, {after, x.after}} {
			var all []string
			for _, place := range slices.Sorted(maps.Keys(side.got)) {
				all = append(all, place+"="+strings.TrimPrefix(side.got[place], "deny: "))
			}
			if got := strings.Join(all, " "); got != side.want {
				t.Errorf("%q to %q: %q, want %q", x.was, x.is, got, side.want)
			}
		}
	}
	long := strings.Repeat("é", 200)
	off := &Rule{Action: actionLane, Expression: "ssl", Description: "members", Own: RuleExtensions{"gold", 30}}
	_, after := said(nil, []*Rule{off, {Action: actionBypass, Expression: long, Enabled: true}})
	want := map[string]string{"rule 1": "lane gold, 30 % (off): ssl # members",
		"rule 2": "bypass: " + long[:192] + "…"}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error(diff)
	}
}
