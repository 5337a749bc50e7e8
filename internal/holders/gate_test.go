package holders

import (
	"crypto/sha256"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/store"
)

func TestTheGate(t *testing.T) {
	b := NewBook(Config{Store: &store.Memory{}, Log: discard()})
	b.Open(time.Minute)
	check(t, b)
	good, poor, gone := one(t, b, "pro"), one(t, b, ""), one(t, b, "pro")
	if _, _, err := b.Revoke(t.Context(), gone.ID, ""); err != nil {
		t.Fatal(err)
	}
	invented, _ := newKey(newID(9))
	closed := NewBook(Config{Store: &store.Memory{}, Log: discard()})
	const bearer = "Bearer "
	api := func(key string) http.Header { return http.Header{"X-Api-Key": {key}} }
	auth := func(v ...string) http.Header { return http.Header{"Authorization": v} }
	key, custom, optional := Gate{Header: "Authorization"}, Gate{Header: "X-Api-Key"}, Gate{Header: "Authorization", Optional: true}
	for name, x := range map[string]struct {
		gate    Gate
		headers http.Header
		status  int
		id      ID
		plan    string
		left    string // of the key at the origin
		says    string
	}{
		"good":                 {key, auth(bearer + good.Key), 200, good.ID, "pro", "", ""},
		"in another case":      {key, auth("bEARER  " + good.Key + " "), 200, good.ID, "pro", "", ""},
		"without a plan":       {key, auth(bearer + poor.Key), 200, poor.ID, "", "", ""},
		"in its own header":    {custom, api(good.Key), 200, good.ID, "pro", "", ""},
		"forwarded":            {Gate{Header: "X-Api-Key", Forward: true}, api(good.Key), 200, good.ID, "pro", good.Key, ""},
		"none":                 {key, nil, 401, 0, "", "", "A key is needed"},
		"none in its header":   {custom, auth(bearer + good.Key), 401, 0, "", "", "X-Api-Key: hgk_"},
		"optional":             {optional, nil, 200, 0, "", "", ""},
		"of the origin":        {optional, auth("Basic YTpi"), 200, 0, "", "Basic YTpi", ""},
		"needed beside origin": {key, auth("Basic YTpi"), 401, 0, "", "", "A key is needed"},
		"of operators":         {key, auth(bearer + "hg_abc"), 401, 0, "", "", "A key is needed"},
		"mistyped":             {key, auth(bearer + good.Key[:30] + "0" + good.Key[31:]), 401, 0, "", "", "a letter is missing or wrong"},
		"without Bearer":       {optional, auth(good.Key), 401, 0, "", "", "Authorization: Bearer"},
		"behind a tab":         {optional, auth("Bearer\t" + good.Key), 401, 0, "", "", "Authorization: Bearer"},
		"behind another word":  {optional, auth("Token " + good.Key), 401, 0, "", "", "Authorization: Bearer"},
		"behind a colon":       {optional, auth("Bearer: " + good.Key), 401, 0, "", "", "Authorization: Bearer"},
		"in quotes":            {optional, auth(`Bearer "` + good.Key + `"`), 401, 0, "", "", "Authorization: Bearer"},
		"as a parameter":       {optional, auth("ApiKey key=" + good.Key), 401, 0, "", "", "Authorization: Bearer"},
		"in capitals":          {optional, auth(bearer + strings.ToUpper(good.Key)), 401, 0, "", "", "a letter is missing or wrong"},
		"behind Bearer there":  {Gate{Header: "X-Api-Key", Optional: true}, api(bearer + good.Key), 401, 0, "", "", "X-Api-Key: hgk_"},
		"inside of another":    {optional, auth(bearer + "eyJ0hgk_x.y-z"), 200, 0, "", bearer + "eyJ0hgk_x.y-z", ""},
		"cut off":              {optional, auth(bearer + Prefix), 401, 0, "", "", "a letter is missing or wrong"},
		"invented":             {optional, auth(bearer + invented), 401, 0, "", "", "no holder has it"},
		"revoked":              {optional, auth(bearer + gone.Key), 401, 0, "", "", "was revoked"},
		"two":                  {key, auth(bearer+good.Key, bearer+poor.Key), 401, 0, "", "", "there are two"},
		"beside another":       {key, auth("Basic YTpi", bearer+good.Key), 401, 0, "", "", "there are two"},
		"joined":               {key, auth(bearer + good.Key + ", " + bearer + poor.Key), 401, 0, "", "", "there are two"},
		"not known":            {Gate{Header: "Authorization", Book: closed, Optional: true}, auth(bearer + good.Key), 503, 0, "", "", "not known now"},
	} {
		t.Run(name, func(t *testing.T) {
			g := x.gate
			if g.Book == nil {
				g.Book = b
			}
			g.Counts = &Counts{}
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header = http.Header{}
			maps.Copy(r.Header, x.headers)
			reached := false
			w := httptest.NewRecorder()
			g.Before(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				reached = true
				id := ""
				if x.id != 0 {
					id = x.id.String()
				}
				if r.Header.Get(HolderHeader) != id || r.Header.Get(PlanHeader) != x.plan ||
					r.Header.Get(g.Header) != x.left {
					t.Errorf("the origin gets %v", r.Header)
				}
			})).ServeHTTP(w, r)
			if w.Code != x.status || reached != (x.status == 200) ||
				!strings.Contains(w.Body.String(), x.says) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if strings.Contains(w.Body.String()+w.Header().Get("Www-Authenticate"), good.Key[10:20]) {
				t.Error("the key is repeated")
			}
			if (w.Code == 401) != (w.Header().Get("Www-Authenticate") != "") {
				t.Errorf("%d with %v", w.Code, w.Header())
			}
			n := uint64(0)
			g.Counts.Each(func(_ Outcome, x uint64) { n += x })
			if n != 1 {
				t.Errorf("counted %d times", n)
			}
		})
	}
}

// A preflight has no key. It passes as a preflight: no header makes another request of it at the origin.
func TestAPreflightStaysOne(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), "OPTIONS", "/", nil)
	for name, v := range map[string]string{"Origin": "https://example.com", "Access-Control-Request-Method": "GET",
		"X-Http-Method-Override": "POST", "X_Http-Method": "POST", "X-Original-Url": "/other"} {
		r.Header[name] = []string{v}
	}
	reached := false
	g := Gate{Book: NewBook(Config{Log: discard()}), Header: "Authorization", Counts: &Counts{}}
	g.Before(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if reached = true; len(r.Header) != 2 {
			t.Errorf("the origin gets %v", r.Header)
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
	if !reached {
		t.Error("it does not pass")
	}
}

func TestDropNames(t *testing.T) {
	h := http.Header{HolderHeader: {"aaaaaaaaaaaa"}, PlanHeader: {"pro"}, "X": {"1"}}
	DropNames(h)
	if len(h) != 1 {
		t.Error(h)
	}
}

// BenchmarkFind is the look-up of a key among 100,000: as a whole, what a wrong key costs, and the SHA-256.
func BenchmarkFind(b *testing.B) {
	book := NewBook(Config{Store: &store.Memory{}, Bus: store.NewBus(nil), Log: discard()})
	book.Open(time.Hour)
	check(b, book)
	made, err := book.Add(b.Context(), drafts(100_000, "pro"), plans())
	if err != nil {
		b.Fatal(err)
	}
	check(b, book)
	invented, _ := newKey(newID(9))
	b.Run("sha256", func(b *testing.B) {
		text := []byte(invented)
		for b.Loop() {
			sha256.Sum256(text)
		}
	})
	for _, x := range []struct {
		name string
		key  func(i int) string
		want Outcome
	}{
		{"known", func(i int) string { return made[i*7919%len(made)].Key }, Known},
		{"same", func(int) string { return made[0].Key }, Known},
		{"unknown", func(int) string { return invented }, Unknown},
		{"malformed", func(int) string { return invented[:54] + "aa" }, Malformed},
	} {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, o := book.Find(x.key(i)); o != x.want {
					b.Fatal(o)
				}
				i++
			}
		})
	}
}
