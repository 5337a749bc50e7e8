//go:build real

package server

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// What all data centres share is told by the home alone, wherever it was said and by whom; what one
// has for itself, by that one.
func TestWebhooksOfTwoDataCentres(t *testing.T) {
	t.Parallel()
	g := newReceiver(t)
	hooks := hooked(secretFile(t, oneSecret), "", g)
	all := centres(t, strings.TrimPrefix(hooks, shop)+sharedLimits+twoSites, "sjc", "lhr")
	for _, p := range all {
		p.told("shop")
		p.told(limitsWatched)
	}
	for path, body := range map[string]string{
		"/v1/limits/api": `{"amount": 7}`, "/v1/limits/near": `{"amount": 8}`,
		"/v1/rooms/shop": `{"total_active_users": 11}`,
	} {
		if r := operate(t, all["lhr"], "PATCH", path, body); r.StatusCode != http.StatusOK {
			t.Fatal(r.Status, r.body)
		}
	}
	g.awaits(t, "limit_changed api", "limit_changed near", "limit_changed shop")
	within(t, time.Minute, "known in both", func() bool {
		for _, p := range all {
			if p.told(limitsWatched).Limits["api"]["amount"] != "7" ||
				p.told("shop").Limits[""]["total_active_users"] != "11" {
				return false
			}
		}
		return true
	})
	g.awaits(t, "limit_changed api", "limit_changed near", "limit_changed shop")
	for _, l := range g.got() {
		d, want := l.body.Data, "sjc"
		if d.Limit == "near" {
			want = "lhr"
		}
		if d.Datacenter != want || !strings.HasSuffix(d.By, " ann") {
			t.Errorf("%s", l.text)
		}
	}
}
