package limittable

import "strings"

// planMark begins the keys of callers with a plan: ~plan:pro|bob. No other key that is counted begins
// like this, because package ratelimit hashes those that do.
const planMark = "~plan:"

// PlanKey returns the first part of the keys of a plan. In the overrides of Compile, it stands for all
// of them.
func PlanKey(plan string) string { return planMark + plan + "|" }

// IsPlanKey reports whether a key has the form of a key of a plan.
func IsPlanKey(key string) bool { return strings.HasPrefix(key, planMark) }

// CutPlan splits a key of a plan behind its first part. Of any other key the first part is "".
func CutPlan(key string) (plan, rest string) {
	plan = planPart(key)
	return plan, key[len(plan):]
}

func planPart(key string) string {
	if !IsPlanKey(key) {
		return ""
	}
	return key[:strings.IndexByte(key, '|')+1]
}
