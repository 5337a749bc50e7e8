//go:build real

package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// A room that is made at one node is one room at all of them, is changed at any, and each node reads
// back what another has written.
func TestMadeRoomOfAllNodes(t *testing.T) {
	t.Parallel()
	all := nodes(t, "zones:\n  - {name: tea.example, origin: ORIGIN}\n"+anyHost, "n1", "n2", "n3")
	var bosses []*boss
	for _, p := range all {
		bosses = append(bosses, p.boss("write")) // a token is of one node
	}
	const rooms = "/client/v4/zones/tea.example/waiting_rooms"
	a := bosses[0].ask("POST", rooms, strings.Replace(teaRoom, "{", `{"custom_page_html":"<p>own</p>",`, 1))
	if a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	r := a.room(t)
	open := func(p *process) func() bool {
		return func() bool {
			status, _, _ := see(t, p, "tea.example", "")
			return status != 404
		}
	}
	for i, b := range bosses {
		if got := b.ask("GET", rooms+"/"+r.ID, "").room(t); got.Name != "tea" {
			t.Errorf("n%d does not know it at once", i+1)
		}
	}
	entered := 0
	for _, p := range all {
		eventually(t, "open at "+p.operators, open(p))
	}
	for i := range 9 {
		if _, _, body := see(t, all[i%3], "tea.example", ""); strings.HasPrefix(body, "origin") {
			entered++
		} else if body != "<p>own</p>" {
			t.Errorf("who waits sees %q", body)
		}
	}
	if entered > 1 {
		t.Errorf("%d entered over three nodes, and one may", entered)
	}
	if a = bosses[1].ask("PATCH", rooms+"/"+r.ID, `{"suspended":true}`); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	for _, p := range all {
		eventually(t, "suspended at "+p.operators, func() bool {
			_, _, body := see(t, p, "tea.example", "")
			return strings.HasPrefix(body, "origin")
		})
	}
	writeAtOnce(t, bosses, rooms, r.ID)
	if a = bosses[2].ask("DELETE", rooms+"/"+r.ID, ""); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	for _, p := range all {
		eventually(t, "gone at "+p.operators, func() bool { return !open(p)() })
	}
}

// writeAtOnce lets all nodes write at once: nothing of it is lost, and each has a version.
func writeAtOnce(t *testing.T, bosses []*boss, rooms, id string) {
	const each = 5
	var wg sync.WaitGroup
	for i, b := range bosses {
		wg.Go(func() {
			for n := range each {
				body := fmt.Sprintf(`{"action":"deny","expression":"ssl","description":"%d-%d"}`, i, n)
				if a := b.ask("POST", rooms+"/"+id+"/rules", body); a.StatusCode != 200 {
					t.Error(a.text)
				}
			}
		})
	}
	wg.Wait()
	var list []struct{ Description string }
	a := bosses[0].ask("GET", rooms+"/"+id+"/rules", "")
	if err := json.Unmarshal(a.Result, &list); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, x := range list {
		seen[x.Description] = true
	}
	if len(list) != len(bosses)*each || len(seen) != len(list) {
		t.Errorf("of %d rules %d are there: %s", len(bosses)*each, len(list), a.text)
	}
}
