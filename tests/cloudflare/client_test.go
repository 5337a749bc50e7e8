package cloudflare

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	wr "github.com/cloudflare/cloudflare-go/v6/waiting_rooms"
)

const zone = "023e105f4ecef8ad9ca31a8372d0c353"

// TestClient does what operators do, all of it twice: nothing of the first time stands in the way of
// the second. The room that visitors come to has another name then, for a room that is made again
// goes on with its line.
func TestClient(t *testing.T) {
	g := build(t)
	for _, turn := range []string{"first", "second"} {
		t.Run(turn, func(t *testing.T) {
			c := g.client(g.token)
			id := rooms(t, g, c, turn)
			routes(t, g, c, turn)
			events(t, c, id)
			rules(t, g, c, id, turn)
			settings(t, c)
			status(t, g, c, id, turn)
			preview(t, c)
			leave(t, g, c, id, turn)
		})
	}
}

func query(name string) wr.QueryParam {
	return with[wr.QueryParam](v{"Name": name, "Host": name + ".example.com",
		"TotalActiveUsers": int64(300), "NewUsersPerMinute": int64(200)})
}

func rooms(t *testing.T, g *gate, c *wr.WaitingRoomService, last string) (id string) {
	ctx := t.Context()
	if ids := g.zones(g.token, "?name=example.com"); len(ids) != 1 || ids[0] != zone {
		t.Fatal(ids)
	}
	for i := range 12 {
		name := fmt.Sprintf("shop%d", i)
		if i == 11 {
			name = last
		}
		r, err := c.New(ctx, with[wr.WaitingRoomNewParams](v{"ZoneID": zone, "Query": query(name)}))
		if err != nil {
			t.Fatal(err)
		}
		if r.SessionDuration != 5 || r.QueueingMethod != "fifo" || r.Path != "/" ||
			r.QueueingStatusCode != 200 {
			t.Error("defaults:", r.JSON.RawJSON())
		}
		id = r.ID
	}
	pager := c.ListAutoPaging(ctx, with[wr.WaitingRoomListParams](v{"ZoneID": zone,
		"PerPage": 5.0}))
	names := map[string]bool{}
	for pager.Next() {
		names[pager.Current().Name] = true
		if len(names) > 13 {
			break
		}
	}
	if err := pager.Err(); err != nil || len(names) != 13 || !names["main"] {
		t.Errorf("%d rooms: %v", len(names), err)
	}
	_, err := c.New(ctx, with[wr.WaitingRoomNewParams](v{"ZoneID": zone, "Query": query("shop1")}))
	refused(t, err, "/name", "/path")
	if res := g.get(last+".example.com", "/x"); res.StatusCode != http.StatusOK {
		t.Errorf("a room that was made lets nobody in: %s", res.Status)
	}
	edited, err := c.Edit(ctx, id, with[wr.WaitingRoomEditParams](v{"ZoneID": zone,
		"Query": with[wr.QueryParam](v{"QueueAll": true, "Description": "busy"})}))
	if err != nil || !edited.QueueAll || edited.TotalActiveUsers != 300 {
		t.Fatal(edited, err)
	}
	if res := g.get(last+".example.com", "/x"); !strings.Contains(res.Header.Get("Set-Cookie"), last) {
		t.Errorf("queue_all, and no ticket: %s %v", res.Status, res.Header)
	}
	q := with[wr.QueryParam](v{"Name": last, "Host": last + ".example.com",
		"TotalActiveUsers": 300, "NewUsersPerMinute": 200, "SessionDuration": 2, "QueueingStatusCode": 429,
		"CustomPageHTML": "<p>{{waitTimeFormatted}}</p>", "QueueAll": true})
	put, err := c.Update(ctx, id, with[wr.WaitingRoomUpdateParams](v{"ZoneID": zone, "Query": q}))
	if err != nil || put.Description != "" || put.SessionDuration != 2 {
		t.Fatal("a replacement keeps what was left out", put, err)
	}
	got, err := c.Get(ctx, id, with[wr.WaitingRoomGetParams](v{"ZoneID": zone}))
	if err != nil || got.JSON.RawJSON() != put.JSON.RawJSON() {
		t.Errorf("written %s, read %s, %v", put.JSON.RawJSON(), got.JSON.RawJSON(), err)
	}
	if res := g.get(last+".example.com", "/x"); res.StatusCode != 429 {
		t.Errorf("queueing_status_code 429, and the page has %s", res.Status)
	}
	_, err = c.Edit(ctx, id, with[wr.WaitingRoomEditParams](v{"ZoneID": zone,
		"Query": with[wr.QueryParam](v{"Name": "other", "Path": "x"})}))
	refused(t, err, "/name")
	return id
}

// routes makes a room over two hosts: whoever is inside on one is inside on the other, by one cookie.
func routes(t *testing.T, g *gate, c *wr.WaitingRoomService, turn string) {
	ctx := t.Context()
	host, other := "one."+turn+".example.com", "two."+turn+".example.com"
	list := []wr.AdditionalRoutesParam{
		with[wr.AdditionalRoutesParam](v{"Host": other, "Path": "/pay"}),
		with[wr.AdditionalRoutesParam](v{"Host": host, "Path": "/x"})}
	q := with[wr.QueryParam](v{"Name": "both-" + turn, "Host": host, "Path": "/shop",
		"TotalActiveUsers": int64(1), "NewUsersPerMinute": int64(99), "AdditionalRoutes": list,
		"CookieSuffix": "abcd"})
	r, err := c.New(ctx, with[wr.WaitingRoomNewParams](v{"ZoneID": zone, "Query": q}))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := c.Get(ctx, r.ID, with[wr.WaitingRoomGetParams](v{"ZoneID": zone}))
		if err != nil || got.CookieSuffix != "abcd" || len(got.AdditionalRoutes) != 2 ||
			got.AdditionalRoutes[0].Host != other || got.AdditionalRoutes[0].Path != "/pay" ||
			got.AdditionalRoutes[1].Host != host || got.AdditionalRoutes[1].Path != "/x" {
			t.Fatal(got, err)
		}
		put, err := c.Update(ctx, r.ID, with[wr.WaitingRoomUpdateParams](v{"ZoneID": zone, "Query": q}))
		if err != nil || put.JSON.RawJSON() != got.JSON.RawJSON() {
			t.Errorf("read %s, written %s, %v", got.JSON.RawJSON(), put.JSON.RawJSON(), err)
		}
	}
	inside, waits := g.visitor(), g.visitor()
	if res := inside.get(host, "/shop/tea"); res.StatusCode != http.StatusOK || inside.cookies(host) != 1 {
		t.Fatalf("%s, %v", res.Status, res.Header)
	}
	for _, at := range [][2]string{{other, "/pay"}, {host, "/x/y"}, {host, "/shop"}} {
		res := inside.get(at[0], at[1])
		if res.StatusCode != http.StatusOK || res.Header.Get("Headgate-State") != "" {
			t.Errorf("%v: who is inside waits: %s %v", at, res.Status, res.Header)
		}
		if res := waits.get(at[0], at[1]); res.Header.Get("Headgate-State") != "waiting" {
			t.Errorf("%v: a second one is not made to wait: %s", at, res.Status)
		}
		if n, m := inside.cookies(at[0]), waits.cookies(at[0]); n != 1 || m != 1 {
			t.Errorf("%v: %d and %d cookies", at, n, m)
		}
	}
	eventually(t, "one inside and one waiting", func() bool {
		s, err := c.Statuses.Get(ctx, r.ID, with[wr.StatusGetParams](v{"ZoneID": zone}))
		if err != nil {
			t.Fatal(err)
		}
		return s.EstimatedTotalActiveUsers == 1 && s.EstimatedQueuedUsers == 1
	})
	_, err = c.Edit(ctx, r.ID, with[wr.WaitingRoomEditParams](v{"ZoneID": zone,
		"Query": with[wr.QueryParam](v{"CookieSuffix": ""})}))
	refused(t, err, "/cookie_suffix")
	_, err = c.New(ctx, with[wr.WaitingRoomNewParams](v{"ZoneID": zone, "Query": with[wr.QueryParam](v{
		"Name": "more", "Host": other, "Path": "/pay", "TotalActiveUsers": int64(1),
		"NewUsersPerMinute": int64(1)})}))
	refused(t, err, "/path")
	_, err = c.Edit(ctx, r.ID, with[wr.WaitingRoomEditParams](v{"ZoneID": zone,
		"Query": with[wr.QueryParam](v{"AdditionalRoutes": []wr.AdditionalRoutesParam{
			with[wr.AdditionalRoutesParam](v{"Host": "elsewhere.org"})}})}))
	refused(t, err, "/additional_routes/0/host")
}

// refused wants an error that names places, and was asked for once.
func refused(t *testing.T, err error, pointers ...string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), " 400 Bad Request ") {
		t.Errorf("not refused by 400: %v", err)
		return
	}
	for _, p := range pointers {
		if !strings.Contains(err.Error(), `"pointer":"`+p+`"`) {
			t.Errorf("no error at %s: %v", p, err)
		}
	}
}

func events(t *testing.T, c *wr.WaitingRoomService, room string) {
	ctx, start := t.Context(), time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	q := with[wr.EventQueryParam](v{"Name": "sale", "EventStartTime": start.Format(time.RFC3339),
		"EventEndTime": start.Add(time.Hour).Format(time.RFC3339), "Suspended": true})
	e, err := c.Events.New(ctx, room, with[wr.EventNewParams](v{"ZoneID": zone, "EventQuery": q}))
	if err != nil {
		t.Fatal(err)
	}
	e, err = c.Events.Edit(ctx, room, e.ID, with[wr.EventEditParams](v{"ZoneID": zone,
		"EventQuery": with[wr.EventQueryParam](v{"TotalActiveUsers": 900, "NewUsersPerMinute": 700,
			"PrequeueStartTime":   start.Add(-30 * time.Minute).Format(time.RFC3339),
			"ShuffleAtEventStart": true})}))
	if err != nil || e.TotalActiveUsers != 900 || !e.ShuffleAtEventStart {
		t.Fatal(e, err)
	}
	d, err := c.Events.Details.Get(ctx, room, e.ID, with[wr.EventDetailGetParams](v{"ZoneID": zone}))
	if err != nil || d.TotalActiveUsers != 900 || d.SessionDuration != 2 {
		t.Error(d, err)
	}
	e, err = c.Events.Update(ctx, room, e.ID, with[wr.EventUpdateParams](v{"ZoneID": zone, "EventQuery": q}))
	if err != nil || !e.JSON.TotalActiveUsers.IsNull() {
		t.Error("a replacement keeps an override", e, err)
	}
	got, err := c.Events.Get(ctx, room, e.ID, with[wr.EventGetParams](v{"ZoneID": zone}))
	if err != nil || got.JSON.RawJSON() != e.JSON.RawJSON() {
		t.Error(got, err)
	}
	pager := c.Events.ListAutoPaging(ctx, room, with[wr.EventListParams](v{"ZoneID": zone}))
	n := 0
	for pager.Next() {
		n++
	}
	if n != 1 || pager.Err() != nil {
		t.Error(n, pager.Err())
	}
	gone, err := c.Events.Delete(ctx, room, e.ID, with[wr.EventDeleteParams](v{"ZoneID": zone}))
	if err != nil || gone.ID != e.ID {
		t.Error(gone, err)
	}
	_, err = c.Events.New(ctx, room, with[wr.EventNewParams](v{"ZoneID": zone,
		"EventQuery": with[wr.EventQueryParam](v{"Name": "a b"})}))
	refused(t, err, "/event_start_time", "/event_end_time")
}

func rules(t *testing.T, g *gate, c *wr.WaitingRoomService, room, name string) {
	ctx := t.Context()
	var ids []string
	for _, path := range []string{"a", "b", "c"} {
		res, err := c.Rules.New(ctx, room, with[wr.RuleNewParams](v{"ZoneID": zone,
			"Rules": with[wr.RuleNewParamsRules](v{"Action": wr.RuleNewParamsRulesActionBypassWaitingRoom,
				"Expression": `http.request.uri.path eq "/` + path + `"`, "Description": path,
				"Enabled": true})}))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, res.Result[len(res.Result)-1].ID)
	}
	order := func(list []wr.WaitingRoomRule) (s string) {
		for _, r := range list {
			s += r.Description
		}
		return s
	}
	for _, step := range []struct {
		rule     int
		position wr.RuleEditParamsPositionUnion
		want     string
	}{
		{2, with[wr.RuleEditParamsPositionIndex](v{"Index": int64(1)}), "cab"},
		{2, with[wr.RuleEditParamsPositionAfter](v{"After": ids[1]}), "abc"},
		{1, with[wr.RuleEditParamsPositionBefore](v{"Before": ids[0]}), "bac"},
		{2, with[wr.RuleEditParamsPositionBefore](v{"Before": ""}), "cba"},
		{2, with[wr.RuleEditParamsPositionAfter](v{"After": ""}), "bac"},
	} {
		res, err := c.Rules.Edit(ctx, room, ids[step.rule], with[wr.RuleEditParams](v{"ZoneID": zone,
			"Action":     wr.RuleEditParamsActionBypassWaitingRoom,
			"Expression": `http.request.uri.path eq "/z"`, "Enabled": true, "Position": step.position}))
		if err != nil || order(res.Result) != step.want {
			t.Fatalf("%v: %v, want %s", order(res.Result), err, step.want)
		}
	}
	res, err := c.Rules.Delete(ctx, room, ids[0], with[wr.RuleDeleteParams](v{"ZoneID": zone}))
	if err != nil || order(res.Result) != "bc" {
		t.Error(res, err)
	}
	list := []wr.RuleUpdateParamsRule{with[wr.RuleUpdateParamsRule](v{
		"Action":     wr.RuleUpdateParamsRulesActionBypassWaitingRoom,
		"Expression": `starts_with(http.request.uri.path, "/webhooks/")`, "Enabled": true})}
	var first string
	for range 2 {
		put, err := c.Rules.Update(ctx, room, with[wr.RuleUpdateParams](v{"ZoneID": zone, "Rules": list}))
		if err != nil || len(put.Result) != 1 {
			t.Fatal(put, err)
		}
		if first != "" && put.Result[0].ID != first {
			t.Error("the same rules again have another id")
		}
		first = put.Result[0].ID
	}
	if res := g.get(name+".example.com", "/webhooks/paid"); res.StatusCode != http.StatusOK {
		t.Errorf("what a rule lets pass by waits: %s", res.Status)
	}
	got, err := c.Rules.Get(ctx, room, with[wr.RuleGetParams](v{"ZoneID": zone}))
	if err != nil || len(got.Result) != 1 || got.Result[0].ID != first {
		t.Error(got, err)
	}
	_, err = c.Rules.New(ctx, room, with[wr.RuleNewParams](v{"ZoneID": zone,
		"Rules": with[wr.RuleNewParamsRules](v{"Action": wr.RuleNewParamsRulesActionBypassWaitingRoom,
			"Expression": `http.hots eq "x"`})}))
	refused(t, err, "/expression")
}

func settings(t *testing.T, c *wr.WaitingRoomService) {
	ctx := t.Context()
	put, err := c.Settings.Update(ctx, with[wr.SettingUpdateParams](v{"ZoneID": zone,
		"SearchEngineCrawlerBypass": true}))
	if err != nil || !put.SearchEngineCrawlerBypass {
		t.Error(put, err)
	}
	if _, err = c.Settings.Edit(ctx, with[wr.SettingEditParams](v{"ZoneID": zone})); err != nil {
		t.Error(err)
	}
	got, err := c.Settings.Get(ctx, with[wr.SettingGetParams](v{"ZoneID": zone}))
	if err != nil || !got.SearchEngineCrawlerBypass {
		t.Error(got, err)
	}
}

func status(t *testing.T, g *gate, c *wr.WaitingRoomService, room, name string) {
	waits := g.visitor()
	for range 2 { // the second time its cookie comes back
		waits.get(name+".example.com", "/wait")
	}
	var got *wr.StatusGetResponse
	eventually(t, "queueing", func() (ok bool) {
		var err error
		got, err = c.Statuses.Get(t.Context(), room, with[wr.StatusGetParams](v{"ZoneID": zone}))
		if err != nil {
			t.Fatal(err)
		}
		return got.Status == wr.StatusGetResponseStatusQueueing && got.EstimatedQueuedUsers > 0
	})
}

func preview(t *testing.T, c *wr.WaitingRoomService) {
	p, err := c.Page.Preview(t.Context(), with[wr.PagePreviewParams](v{"ZoneID": zone,
		"CustomHTML": "<p>{{waitTime}} minutes</p>"}))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Get(p.PreviewURL + "?waitTime=17")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); string(b) != "<p>17 minutes</p>" {
		t.Errorf("%s: %s", res.Status, b)
	}
	_, err = c.Page.Preview(t.Context(), with[wr.PagePreviewParams](v{"ZoneID": zone,
		"CustomHTML": "<p>{{waitTim}}</p>"}))
	refused(t, err, "/custom_html")
}

// leave kills the process: what was written is there, and is deleted then.
func leave(t *testing.T, g *gate, c *wr.WaitingRoomService, room, name string) {
	ctx := t.Context()
	before, err := c.Get(ctx, room, with[wr.WaitingRoomGetParams](v{"ZoneID": zone}))
	if err != nil {
		t.Fatal(err)
	}
	g.kill()
	g.start()
	after, err := c.Get(ctx, room, with[wr.WaitingRoomGetParams](v{"ZoneID": zone}))
	if err != nil || after.JSON.RawJSON() != before.JSON.RawJSON() {
		t.Errorf("before the kill %s, after it %s, %v", before.JSON.RawJSON(), after.JSON.RawJSON(), err)
	}
	if res := g.get(name+".example.com", "/x"); res.StatusCode != 429 {
		t.Errorf("after the kill the page has %s", res.Status)
	}
	for pager := c.ListAutoPaging(ctx, with[wr.WaitingRoomListParams](v{"ZoneID": zone})); pager.Next(); {
		r := pager.Current()
		gone, err := c.Delete(ctx, r.ID, with[wr.WaitingRoomDeleteParams](v{"ZoneID": zone}))
		if r.Name == "main" {
			refused(t, err, "")
		} else if err != nil || gone.ID != r.ID {
			t.Error(r.Name, err)
		}
	}
	if res := g.get(name+".example.com", "/x"); res.StatusCode != http.StatusNotFound {
		t.Errorf("a room that was deleted is still there: %s", res.Status)
	}
}

// Of another zone, with another token, nothing is to be had.
func TestScopes(t *testing.T) {
	g := build(t)
	ctx := t.Context()
	read := g.run("token", "create", "--scope", "read:zone/example.com", "--data", g.dir+"/data")
	c := g.client(read)
	if _, err := c.List(ctx, with[wr.WaitingRoomListParams](v{"ZoneID": zone})); err != nil {
		t.Error(err)
	}
	_, err := c.New(ctx, with[wr.WaitingRoomNewParams](v{"ZoneID": zone, "Query": query("a")}))
	forbidden(t, err)
	if ids := g.zones(g.token, ""); len(ids) != 1 {
		t.Fatal("a token of one zone sees others:", ids)
	}
	all := g.run("token", "create", "--scope", "write", "--data", g.dir+"/data")
	boss, ids := g.client(all), g.zones(all, "")
	if len(ids) != 2 {
		t.Fatal(ids)
	}
	rest := ids[1]
	_, err = g.client(g.token).New(ctx, with[wr.WaitingRoomNewParams](v{"ZoneID": rest, "Query": query("a")}))
	forbidden(t, err)
	list, err := boss.List(ctx, with[wr.WaitingRoomListParams](v{"AccountID": "any"}))
	if err != nil || len(list.Result) != 1 {
		t.Error(list, err)
	}
}

func forbidden(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), " 403 Forbidden ") {
		t.Errorf("not forbidden: %v", err)
	}
}
