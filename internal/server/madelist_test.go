package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const officeList = "lists:\n  - {name: office, addresses: [192.0.2.0/24]}\n"

// A rule that asks for a list which the file has lost keeps its own room back, and no other one.
func TestAListThatIsGone(t *testing.T) {
	p := run(t, officeList+anyHost)
	b := p.boss("write")
	made := func(name string) string {
		t.Helper()
		a := b.ask("POST", ":", strings.NewReplacer("tea", name).Replace(teaOf(p)))
		if a.StatusCode != http.StatusOK {
			t.Fatal(a.text)
		}
		return a.room(t).ID
	}
	tea := made("tea")
	a := b.ask("POST", ":/"+tea+"/rules", `{"action":"deny","expression":"ip.src in $office"}`)
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.text)
	}

	p.write(anyHost)
	a = b.ask("POST", "/v1/reload", "")
	if a.StatusCode != http.StatusConflict || !strings.Contains(a.text, `room \"tea\"`) ||
		!strings.Contains(a.text, "$office") {
		t.Error("a reload that takes away what a rule asks for:", a.text)
	}
	if r := b.ask("GET", ":/"+tea, "").room(t); !r.Own.InForce {
		t.Error("it was refused, and now:", r.Own.Problem)
	}

	p.restart()
	b.base = p.operators
	r := b.ask("GET", ":/"+tea, "").room(t)
	if r.Own.InForce || !strings.Contains(r.Own.Problem, "$office") {
		t.Error("after a start without the list:", r.Own)
	}
	made("coffee")
	if status, _, body := see(t, p, "coffee.example", ""); status != http.StatusOK {
		t.Error("another room waits for it:", status, body)
	}
	a = b.ask("PUT", ":/"+tea+"/rules", "[]")
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.text)
	}
	if r = b.ask("GET", ":/"+tea, "").room(t); !r.Own.InForce {
		t.Error("the rule is gone, and still:", r.Own.Problem)
	}
	a = b.ask("GET", "/v1/history?count=1&zone="+fmt.Sprint(zoneID(t, b, "default")), "")
	if !strings.Contains(a.text, `"what":"rules"`) {
		t.Error("the history of a zone by its id:", a.text)
	}
}

func zoneID(t *testing.T, b *boss, name string) string {
	t.Helper()
	_, after, _ := strings.Cut(b.ask("GET", "/v1/zones", "").text, `"id":"`)
	id, rest, ok := strings.Cut(after, `"`)
	if !ok || !strings.Contains(rest, `"name":"`+name+`"`) {
		t.Fatal("no zone of that name", rest)
	}
	return id
}
