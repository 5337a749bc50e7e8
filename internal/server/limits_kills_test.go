//go:build kills && real

package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/api"
)

// A limit of all data centers can be created and removed at any of them, but not while the home is
// unreachable.
func TestALimitOfAllIsMadeAnywhere(t *testing.T) {
	t.Parallel()
	all := centers(t, sharedLimits+twoSites, "sjc", "lhr")
	sjc, lhr := all["sjc"], all["lhr"]
	const path = "/v1/limits/partner"
	lhr.said("PUT", path, denies(7, "global"), 201, `"amount":7`)
	if got := sjc.amount("partner"); got != 7 {
		t.Errorf("at once it is %d in the home, want 7", got)
	}
	sjc.said("PUT", path, denies(8, "global"), 200, "")
	within(t, found, "replaced at lhr", lhr.has("partner", 8))
	lhr.said("PATCH", path, `{"overrides.bob":50}`, 200, `"overrides":{"bob":50,"eve":1}`)
	sjc.said("PATCH", path, `{"amount":9}`, 200, `"overrides":{"bob":50,"eve":1}`)
	within(t, found, "changed at lhr", lhr.has("partner", 9))
	passes(t, []*process{sjc, lhr}, "zoe", 9)

	// A limit of one data center is separate, even under the same name.
	lhr.said("PUT", "/v1/limits/own", madeRule(3, "datacenter"), 201, "")
	lhr.said("PUT", "/v1/limits/own", madeRule(3, "global"), 409, "has another scope")
	lhr.said("PUT", path, madeRule(3, "worker"), 409, "has another scope")
	sjc.said("PUT", "/v1/limits/own", madeRule(4, "worker"), 201, "")
	lhr.said("PUT", "/v1/limits/api", madeRule(3, "global"), 409, "stands in the configuration")

	// A data center that was down catches up with what it missed, including removals.
	sjc.said("PUT", "/v1/limits/gone", madeRule(3, "global"), 201, "")
	within(t, found, "made at lhr", lhr.has("gone", 3))
	lhr.stop()
	sjc.said("PUT", path, madeRule(10, "global"), 200, "")
	sjc.said("DELETE", "/v1/limits/gone", "", 200, "")
	lhr.start()
	within(t, found, "what was missed is found", func() bool {
		return lhr.amount("partner") == 10 && lhr.amount("gone") == -1
	})

	sjc.stop()
	lhr.said("PUT", path, madeRule(11, "global"), 503, "sjc, which does not answer")
	lhr.said("PATCH", path, `{"amount":11}`, 503, "sjc, which does not answer")
	lhr.said("DELETE", path, "", 503, "sjc, which does not answer")
	lhr.said("PUT", "/v1/limits/own", madeRule(5, "datacenter"), 200, "")
	lhr.stop()
	lhr.begin() // ready when the hosts of shared limits answer
	if a, b := lhr.amount("partner"), lhr.amount("own"); a != 10 || b != 5 {
		t.Errorf("after a restart without the home %d and %d, want 10 and 5", a, b)
	}
	sjc.start()
	lhr.await()
	if a, b := sjc.amount("partner"), sjc.amount("own"); a != 10 || b != 4 {
		t.Errorf("the home has %d and %d, want 10 and 4", a, b)
	}

	// The file of the home takes precedence, and lhr may not create a limit that it has.
	sjc.write(strings.Replace(sharedLimits, "{name: near,", "{name: partner,", 1) + twoSites)
	sjc.reload()
	lhr.said(
		"PUT",
		path,
		madeRule(12, "global"),
		409,
		`refuses it: limit \"partner\" stands in the configuration`,
	)
	lhr.said("DELETE", path, "", 200, "")
	if a, b := sjc.amount("partner"), lhr.amount("partner"); a != 3 || b != -1 {
		t.Errorf("removed, it is %d where the file has it and %d elsewhere, want 3 and -1", a, b)
	}
	askedOfAStoreNode(t, lhr)
}

// A limit of all data centers can be changed at any of them. The change is in force in all, also
// after restarts, and cannot be made while the home is unreachable.
func TestALimitOfAllIsChangedAnywhere(t *testing.T) {
	t.Parallel()
	all := centers(t, sharedLimits+twoSites, "sjc", "lhr")
	sjc, lhr := all["sjc"], all["lhr"]
	lhr.setAmount("api", 7)
	if got := lhr.amount("api"); got != 7 {
		t.Errorf("where it was said it is %d, want 7", got)
	}
	within(t, pushed, "in force in the home", sjc.has("api", 7))
	sjc.setAmount("api", 8)
	within(t, found, "in force at lhr", lhr.has("api", 8))
	err := lhr.s.limits.Change(t.Context(), "api", map[string]string{"overrides.bob": "50"})
	if err != nil {
		t.Fatal(err)
	}
	within(t, pushed, "the amount of one key is in force in the home", func() bool {
		return sjc.s.limits.Rules.Limits()[0].Overrides["bob"] == 50 && sjc.amount("api") == 8
	})
	if len(sjc.s.set.Load().cfg.Limits[0].Overrides) > 1 {
		t.Error("the change has changed what the file says")
	}
	many := map[string]string{}
	for i := range 300 {
		many[fmt.Sprintf("overrides.%01000d", i)] = "1"
	}
	err = lhr.s.limits.Change(t.Context(), "api", many)
	if _, ok := errors.AsType[*api.NotPersistedError](err); !ok ||
		!strings.Contains(err.Error(), "too many") {
		t.Errorf("more changes than are kept: %v", err)
	}
	lhr.setAmount("near", 4)
	passesOn(t, lhr)
	within(t, pushed, "what a worker of lhr has asked for is in force in the home", sjc.has("api", 6))
	lhr.stop()
	sjc.setAmount("api", 10)
	lhr.start()
	within(t, found, "what was missed is found", lhr.has("api", 10))

	sjc.stop()
	err = lhr.s.limits.Change(t.Context(), "api", map[string]string{"amount": "11"})
	e, ok := errors.AsType[*api.NotPersistedError](err)
	if !ok || !strings.Contains(e.Reason, "sjc, which does not answer") {
		t.Errorf("without the home: %v", err)
	}
	if got := lhr.amount("api"); got != 10 {
		t.Errorf("a change that was refused is in force: %d", got)
	}
	lhr.stop()
	lhr.begin() // ready when it knows the hosts of shared limits
	if a, b := lhr.amount("api"), lhr.amount("near"); a != 10 || b != 4 {
		t.Errorf("after a restart without the home %d and %d, want 10 and 4", a, b)
	}
	sjc.start()
	lhr.await()
	if a, b := sjc.amount("api"), sjc.amount("near"); a != 10 || b != 3 {
		t.Errorf("the home has %d and %d, want 10, and 3 of what is not of all", a, b)
	}
	err = lhr.s.limits.Change(t.Context(), "api", map[string]string{"amount": "12", "burst": "2"})
	if err == nil || !strings.Contains(err.Error(), "burst") {
		t.Errorf("what makes no sense: %v", err)
	}
	sjc.write(strings.Replace(sharedLimits, "amount: 3,", "amount: 5,", 1) + twoSites)
	sjc.reload()
	if got := sjc.amount("api"); got != 5 {
		t.Errorf("the file of the home says 5, and it is %d", got)
	}
	within(t, found, "dropped at lhr, whose file says 3", lhr.has("api", 3))
}
