package manage

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/hint"
)

// Bounds of the audit log entry for a change of rules. Chosen: a person reads this line.
const (
	mostListed = 5   // rules
	mostOfRule = 200 // bytes
)

// listed returns the rules that a change has changed, before and after, each by its position. It
// leaves out the rules at the beginning and at the end that are the same in both lists.
func listed(before, after []byte) (was, is map[string]string) {
	a, b := ruleTexts(before), ruleTexts(after)
	from := 0
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	for len(a) > from && len(b) > from && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return placed(a, from), placed(b, from)
}

func placed(all []string, from int) map[string]string {
	m := map[string]string{}
	for i := from; i < len(all); i++ {
		if i-from == mostListed {
			m["more rules"] = fmt.Sprint(len(all) - i)
			break
		}
		m[fmt.Sprintf("rule %d", i+1)] = all[i]
	}
	return m
}

// ruleTexts returns the rules of a list as one line each.
func ruleTexts(list []byte) (all []string) {
	var rules []Rule
	if json.Unmarshal(list, &rules) != nil {
		return nil
	}
	for _, r := range rules {
		s := strings.TrimSuffix(r.Action, "_waiting_room")
		if r.Action == actionLane {
			s += fmt.Sprintf(" %s, %d %%", r.Own.Lane, r.Own.Share)
		}
		if !r.Enabled {
			s += " (off)"
		}
		s = hint.Cut(s+": "+r.Expression, mostOfRule)
		if r.Description != "" {
			s += " # " + r.Description
		}
		all = append(all, s)
	}
	return all
}
