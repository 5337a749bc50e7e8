package invite

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/route"
)

func testKey() *Key { return NewKey("shop", []byte("0123456789abcdef0123456789abcdef")) }

func noon() time.Time { return time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC) }

// slow writes a code as its definition says, with one large number.
func slow(room, secret string, c Code) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("headgate invitation "))
	for _, n := range []int{len(room), -1, 1, c.End, c.Batch, c.Serial, c.Uses} {
		if n < 0 {
			h.Write([]byte(room))
			continue
		}
		for ; n >= 0x80; n >>= 7 {
			h.Write([]byte{byte(n) | 0x80})
		}
		h.Write([]byte{byte(n)})
	}
	n := big.NewInt(1)
	for _, f := range []struct {
		v    int
		bits uint
	}{{c.End, 19}, {c.Batch, 16}, {c.Serial, 21}, {c.Uses, 10}} {
		n.Lsh(n, f.bits).Or(n, big.NewInt(int64(f.v)))
	}
	n.Lsh(n, 80).Or(n, new(big.Int).SetBytes(h.Sum(nil)[:10]))
	text := make([]byte, 30)
	for i := 29; i >= 0; i-- {
		text[i] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[new(big.Int).And(n, big.NewInt(31)).Int64()]
		n.Rsh(n, 5)
	}
	return string(text)
}

func randomCode(rng *rand.Rand) Code {
	return Code{Batch: 1 + rng.IntN(MaxBatch), Serial: 1 + rng.IntN(MaxSerial), Uses: 1 + rng.IntN(MaxUses),
		End: EndAt(noon()) + 1 + rng.IntN(1000)}
}

func TestCodesAreAsDefined(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	k := testKey()
	for range 2000 {
		c := randomCode(rng)
		text := k.New(c)
		want := slow("shop", string(k.secret), c)
		if got := strings.ReplaceAll(text, "-", ""); got != want || len(text) != Length {
			t.Fatalf("%+v is %q", c, text)
		}
		typed := strings.NewReplacer("0", "o", "1", "l", "-", " ").Replace(strings.ToLower(text))
		for _, text := range []string{text, strings.ReplaceAll(text, "-", ""), typed, " " + text} {
			if got, err := k.Verify(text, noon()); got != c || err != nil {
				t.Fatalf("%q: %+v %v, want %+v", text, got, err, c)
			}
		}
		if got, err := k.Verify(text, c.Until()); got != c || !errors.Is(err, ErrExpired) {
			t.Fatalf("at its end: %+v %v", got, err)
		}
		if got, err := k.Verify(text, c.Until().Add(-time.Second)); got != c || err != nil {
			t.Fatalf("before its end: %+v %v", got, err)
		}
	}
}

func TestOnlyTheSecretMakesCodes(t *testing.T) {
	k := testKey()
	c := Code{Batch: 7, Serial: 9, Uses: 1, End: EndAt(noon()) + 5}
	text := k.New(c)
	for name, x := range map[string]*Key{
		"another room": NewKey("tea", k.secret), "a room without a name": NewKey("", k.secret),
		"another secret": NewKey("shop", []byte("0123456789abcdef0123456789abcdeg")),
	} {
		if _, err := x.Verify(text, noon()); !errors.Is(err, ErrWrong) || x.Equal(k) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i, was := range []byte(text) { // each digit counts
		for _, digit := range []byte(alphabet) {
			if was == '-' || was == digit {
				continue
			}
			forged := []byte(text)
			forged[i] = digit
			if _, err := k.Verify(string(forged), noon()); !errors.Is(err, ErrWrong) {
				t.Fatalf("%s counts as %s: %v", forged, text, err)
			}
		}
	}
	for _, bad := range []string{
		"", "-", text[:Length-1], text + "0", text + text, strings.Repeat("0", 30), strings.Repeat("Z", 30),
		strings.Repeat("-", 1<<20) + text, strings.Repeat(text, 1<<15), text[:Length-1] + "U",
		text[:Length-1] + "\x00", text[:Length-1] + "\xff",
		"ſ" + text[1:],
	} {
		if _, err := k.Verify(bad, noon()); !errors.Is(err, ErrWrong) {
			t.Errorf("%.50q: %v", bad, err)
		}
	}
	for _, c := range []Code{
		{}, {Batch: 1, Serial: 1, Uses: 1, End: -1}, {Batch: 1 << 16, Serial: 1, Uses: 1},
		{Batch: 1, Serial: 1 << 21, Uses: 1},
		{Batch: 1, Serial: 1}, {Batch: 1, Serial: 1, Uses: -1}, {Batch: 1, Serial: 1, Uses: 1024},
		{Batch: 1, Serial: 1, Uses: 1, End: 1 << 19},
	} {
		if c.Check() == nil {
			t.Errorf("%+v passes", c)
		}
	}
}

// FuzzVerify looks for a code that counts and that New has not written, and for panics.
func FuzzVerify(f *testing.F) {
	k := testKey()
	text := k.New(Code{Batch: 7, Serial: 9, Uses: 1, End: EndAt(noon()) + 5})
	f.Add(text)
	f.Add(strings.ToLower(text))
	f.Add("11111-11111-11111-11111-11111-11111")
	f.Fuzz(func(t *testing.T, typed string) {
		c, err := k.Verify(typed, noon())
		if err == nil && (k.New(c) != text || c.Check() != nil) {
			t.Errorf("%q is %+v", typed, c)
		}
		if p, err := Parse(typed); err == nil {
			if again, err := Parse(k.New(p)); again != p || err != nil {
				t.Errorf("%q is %+v, and then %+v %v", typed, p, again, err)
			}
		}
	})
}

func testDesk() *Desk {
	addr := func(r *http.Request) netip.Addr { return netip.MustParseAddrPort(r.RemoteAddr).Addr() }
	page := func(w http.ResponseWriter, _ *http.Request, back, why string) {
		fmt.Fprintf(w, "back to %s, %q", back, why)
	}
	form := NewForm(route.New([]route.Route{{Path: "/"}, {Path: "/shop"}}, false), addr, page)
	return &Desk{Form: form, Key: testKey(), Counts: &Counts{}, HTTP: []string{"__cfwaitingroom_shop"},
		HTTPS:  []string{"__Host-__cfwaitingroom_shop", "__cfwaitingroom_shop"},
		Secure: func(r *http.Request) bool { return r.TLS != nil }, Path: "/",
		SignIn: "/invited?why={reason}&next={url}",
		Now:    noon, Revoked: func(c Code) bool { return c.Batch == 13 }}
}

// The batch of a code is the group of its visitor, and nothing that the visitor can change.
func TestABatchIsOfAGroup(t *testing.T) {
	d := testDesk()
	d.Groups = map[int]string{7: "press"}
	for batch, want := range map[int]string{7: "press", 8: "", 13: ""} { // 13 is revoked
		c := Code{Batch: batch, Serial: 9, Uses: 1, End: EndAt(noon()) + 5}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", "__cfwaitingroom_shop.code="+d.Key.New(c))
		if _, group, _ := d.Of(r); group != want {
			t.Errorf("batch %d is of %q, want %q", batch, group, want)
		}
		r.Header.Set("Cookie", "__cfwaitingroom_shop.code="+NewKey("other", make([]byte, 32)).New(c))
		if id, group, _ := d.Of(r); id != "" || group != "" {
			t.Errorf("a code of another secret is %q of %q", id, group)
		}
	}
}

func TestALinkBecomesACookie(t *testing.T) {
	d := testDesk()
	end := EndAt(noon())
	good := d.Key.New(Code{Batch: 7, Serial: 9, Uses: 1, End: end + 5})
	over := d.Key.New(Code{Batch: 7, Serial: 9, Uses: 1, End: end})
	revoked := d.Key.New(Code{Batch: 13, Serial: 9, Uses: 1, End: end + 5})
	neither := d.Key.New(Code{Batch: 13, Serial: 9, Uses: 1, End: end})
	passed := 0
	h := d.Take(false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
	for _, c := range []struct {
		method, target string
		status         int
		to             string
		id             string
		result         int
	}{
		{"GET", "/?invitation=" + good, 303, "/", "code 7-9-1-7937", Accepted},
		{"HEAD", "/?invitation=" + good, 303, "/", "code 7-9-1-7937", Accepted},
		{"POST", "/buy?a=1&invitation=" + strings.ToLower(good) + "&b=%26", 307, "/buy?a=1&b=%26",
			"code 7-9-1-7937", Accepted},
		{"GET", "/a%2Fb?invitation=" + strings.ReplaceAll(good, "-", "+") + "&invitation=x", 303, "/a%2Fb",
			"code 7-9-1-7937", Accepted},
		{"GET", "//evil.example/?invitation=" + good, 303, "/evil.example/", "code 7-9-1-7937", Accepted},
		{"GET", "/?invitation=" + over, 303, "/invited?why=expired&next=%2F", "code 7-9-1-7932", Expired},
		{"GET", "/x?y&invitation=" + revoked, 303, "/invited?why=revoked&next=%2Fx%3Fy", "", Revoked},
		{"GET", "/?invitation=" + neither, 303, "/invited?why=revoked&next=%2F", "", Revoked},
		{"POST", "/?invitation=" + good[1:], 303, "/invited?why=wrong&next=%2F", "", Wrong},
		{"GET", "/?invitation", 303, "/invited?why=wrong&next=%2F", "", Wrong},
		{"GET", "/?invitation=%zz", 303, "/invited?why=wrong&next=%2F", "", Wrong},
		{"GET", "/?invitation=" + strings.Repeat("1", 1<<20), 303, "/invited?why=wrong&next=%2F", "", Wrong},
	} {
		was := d.Counts[c.result].Load()
		r := httptest.NewRequest(c.method, "http://shop.example"+c.target, strings.NewReader("body"))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		res := w.Result()
		if res.StatusCode != c.status || res.Header.Get("Location") != c.to || passed != 0 ||
			res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s %.60s: %d to %q, %v", c.method, c.target, res.StatusCode,
				res.Header.Get("Location"), res.Header)
		}
		if d.Counts[c.result].Load() != was+1 {
			t.Errorf("%s %.60s: not counted as %s", c.method, c.target, Words()[c.result])
		}
		next := httptest.NewRequest("GET", "/", nil)
		for _, x := range res.Cookies() {
			if !x.HttpOnly || x.Name != "__cfwaitingroom_shop.code" || x.Path != "/" {
				t.Errorf("%+v", x)
			}
			next.AddCookie(x)
		}
		if id, _, known := d.Of(next); id != c.id || !known {
			t.Errorf("%s %.60s: the visitor is %q", c.method, c.target, id)
		}
	}
	for _, target := range []string{"/", "/?invitations=" + good, "/?x=invitation", "/invitation?y"} {
		was := passed
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil))
		if passed != was+1 {
			t.Errorf("%s does not pass", target)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/?invitation="+over, nil)
	r.Header.Set("Cookie", "__cfwaitingroom_shop.code="+good)
	d.Take(false, h).ServeHTTP(w, r)
	if x := w.Header()["Set-Cookie"]; x != nil {
		t.Errorf("an invitation that has ended replaces one that counts: %q", x)
	}
	w = httptest.NewRecorder()
	strict := testDesk()
	strict.SameSite = http.SameSiteStrictMode
	strict.Take(false, h).ServeHTTP(w, httptest.NewRequest("GET", "/?invitation="+good, nil))
	if x := w.Result().Cookies(); len(x) != 1 || x[0].SameSite != http.SameSiteLaxMode {
		t.Errorf("a browser that follows a link of another site does not send %v", x)
	}
	w = httptest.NewRecorder() // a proxy that relays no answers
	d.Take(true, h).ServeHTTP(w, httptest.NewRequest("GET", "/?invitation="+good, nil))
	if w.Code != http.StatusUnauthorized || w.Header()["Set-Cookie"] != nil {
		t.Errorf("a proxy that asks gets %d %v", w.Code, w.Header())
	}
}

func TestTheCookieIsVerifiedEachTime(t *testing.T) {
	d := testDesk()
	end := EndAt(noon()) + 5
	cookie := func(batch int, key *Key) string {
		return "__cfwaitingroom_shop.code=" + key.New(Code{Batch: batch, Serial: 1, Uses: 1, End: end})
	}
	over := d.Key.New(Code{Batch: 1, Serial: 2, Uses: 1, End: end - 5})
	ended := "__cfwaitingroom_shop.code=" + d.Key.New(Code{Batch: 13, Serial: 1, Uses: 1, End: end - 5})
	for line, want := range map[string]string{
		cookie(1, d.Key):                       "code 1-1-1-7937",
		cookie(13, d.Key):                      "", // revoked since
		ended:                                  "", // revoked, and over since
		cookie(1, NewKey("tea", d.Key.secret)): "",
		"__cfwaitingroom_shop.code=" + over + "; " + cookie(2, d.Key):                 "code 2-1-1-7937",
		cookie(13, d.Key) + "; " + cookie(2, d.Key):                                   "code 2-1-1-7937",
		strings.Repeat(cookie(13, d.Key)+"; ", 4) + cookie(2, d.Key):                  "", // no more than four
		"x__cfwaitingroom_shop.code=1; __cfwaitingroom_shop=" + cookie(1, d.Key)[26:]: "",
		"__cfwaitingroom_shop.code=" + strings.Repeat("1", 1<<16):                     "",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", line)
		if id, _, _ := d.Of(r); id != want {
			t.Errorf("%.99q: %q, want %q", line, id, want)
		}
	}
	id := Code{Batch: 1, Serial: 1, Uses: 1, End: end}.ID()
	if code, uses, got := d.Invitation(id); !got.Equal(Code{End: end}.Until()) || uses != 1 || code != id {
		t.Errorf("%s is %s, for %d until %v", id, code, uses, got)
	}
}

// The cookie of a code of several uses names the visitor, who keeps the name.
func TestACodeOfSeveralUsesNamesTheVisitor(t *testing.T) {
	d := testDesk()
	const name = "__cfwaitingroom_shop.code="
	end := EndAt(noon()) + 5
	code, one := Code{Batch: 7, Serial: 9, Uses: 3, End: end}, Code{Batch: 7, Serial: 8, Uses: 1, End: end}
	text, single := d.Key.New(code), d.Key.New(one)
	open := func(text, cookie string) string {
		r := httptest.NewRequest("GET", "/?invitation="+text, nil)
		r.Header.Set("Cookie", cookie)
		w := httptest.NewRecorder()
		d.Take(false, http.NotFoundHandler()).ServeHTTP(w, r)
		for _, c := range w.Result().Cookies() {
			return c.Name + "=" + c.Value
		}
		return ""
	}
	of := func(cookie string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", cookie)
		id, _, _ := d.Of(r)
		return id
	}
	ada, bob := open(text, ""), open(text, name+single)
	if of(ada) == of(bob) || open(strings.ToLower(text), ada) != ada {
		t.Errorf("two visitors are %q and %q, the first again %q", of(ada), of(bob), of(open(text, ada)))
	}
	if id, uses, until := d.Invitation(of(ada)); id != code.ID() || uses != 3 || !until.Equal(code.Until()) {
		t.Errorf("%q is %q, for %d until %v", of(ada), id, uses, until)
	}
	visitor := ada[len(ada)-visitorLength:]
	for _, bad := range []string{
		name + text, name + text + ".", name + text + "." + visitor[1:], ada + "A", ada[:len(ada)-1] + "a",
		ada[:len(ada)-1] + "1", name + text + "./" + visitor[1:], name + single + ".A",
		name + "." + visitor, name + NewKey("tea", d.Key.secret).New(code) + "." + visitor,
		name + d.Key.New(Code{Batch: 13, Serial: 9, Uses: 3, End: end}) + "." + visitor, // revoked
	} {
		if id := of(bad); id != "" {
			t.Errorf("%s is %q", bad, id)
		}
	}
	for _, id := range []string{"", "code 1", "code 1-2-x-4", "code 1-2-3-x/A", "1-2-3-4-5"} {
		if code, uses, until := d.Invitation(id); code != "" || uses != 0 || !until.IsZero() {
			t.Errorf("%q is an invitation", id)
		}
	}
	for _, other := range []string{d.Key.New(Code{Batch: 8, Serial: 9, Uses: 3, End: end}), single} {
		if x := open(other, ada); of(x) == "" || of(x) == of(ada) || open(text, x) != ada {
			t.Errorf("after the link of %s, ada is %q, and then %q", other, of(x), of(open(text, x)))
		}
	}
	if id := of(name + single + "." + visitor); id != of(name+single) || id != one.ID() {
		t.Errorf("by the code of one use the visitor is %q", id)
	}
}

// FuzzCookie looks for a cookie that counts and that the desk has not written, but for the visitor's name.
func FuzzCookie(f *testing.F) {
	d := testDesk()
	end := EndAt(noon()) + 5
	one := d.Key.New(Code{Batch: 7, Serial: 9, Uses: 1, End: end})
	many := d.Key.New(Code{Batch: 7, Serial: 9, Uses: 3, End: end})
	visitor := strings.Repeat("A2", visitorLength/2)
	for _, text := range []string{one, many, one + "." + visitor, many + "." + visitor, many + "." + visitor + "."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, cookie string) {
		p, result := d.pick(cookie)
		code, _, _ := strings.Cut(cookie, ".")
		named := len(p.visitor) == visitorLength && strings.HasSuffix(cookie, "."+p.visitor)
		if text := d.Key.New(p.Code); result == Accepted && (text != one && text != many ||
			!named && (text == many || p.visitor != "")) {
			t.Errorf("%q is %+v", cookie, p)
		}
		if _, err := d.Key.Verify(code, noon()); result == Accepted && err != nil {
			t.Errorf("%q counts: %v", cookie, err)
		}
		if id, uses, _ := d.Invitation(p.id()); result == Accepted && (id != p.ID() || uses != p.Uses) {
			t.Errorf("%q is %q for %d", cookie, id, uses)
		}
	})
}

// send posts a form with a code from an address.
func send(d *Desk, target, addr, body string) *http.Response {
	r := httptest.NewRequest("POST", target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = addr + ":1234"
	w := httptest.NewRecorder()
	d.Take(false, http.NotFoundHandler()).ServeHTTP(w, r)
	return w.Result()
}

func TestACodeIsTyped(t *testing.T) {
	d := testDesk()
	end := EndAt(noon())
	good := d.Key.New(Code{Batch: 7, Serial: 9, Uses: 1, End: end + 5})
	for _, c := range []struct {
		target, body, to, id string
		result               int
	}{
		{"/.headgate/code?to=%2Fbuy%3Fa%3D1", "invitation=" + strings.ToLower(strings.ReplaceAll(good, "-", "+")),
			"/buy?a=1", "code 7-9-1-7937", Accepted},
		{"/.headgate/code?to=//evil.example/&why=wrong", "invitation=" + good, "/evil.example/", "code 7-9-1-7937",
			Accepted},
		{"/.headgate/code?to=%2F%09%2Fevil.example", "invitation=" + good, "/", "code 7-9-1-7937", Accepted},
		{"/.headgate/code?to=%2F%5Cevil.example", "invitation=" + good, "/evil.example", "code 7-9-1-7937", Accepted},
		{"/shop/.headgate/code", "invitation=" + good, "/shop", "code 7-9-1-7937", Accepted},
		{"/.headgate/code?to=https:evil", "invitation=" + good, "/https:evil", "code 7-9-1-7937", Accepted},
		{"/shop/.headgate/code?to=%2Fx", "invitation=" + good[1:], "/shop/.headgate/code?why=wrong&to=%2Fx", "", Wrong},
		{"/.headgate/code?invitation=" + good, "", "/.headgate/code?why=wrong&to=%2F", "", Wrong}, // not by its address
		{"/.headgate/code", "invitation=%zz", "/.headgate/code?why=wrong&to=%2F", "", Wrong},
		{"/.headgate/code", strings.Repeat("x", mostForm) + "&invitation=" + good,
			"/.headgate/code?why=wrong&to=%2F", "", Wrong},
		{"/.headgate/code", "invitation=" + d.Key.New(Code{Batch: 13, Serial: 9, Uses: 1, End: end + 5}),
			"/.headgate/code?why=revoked&to=%2F", "", Revoked},
		{"/.headgate/code", "invitation=" + d.Key.New(Code{Batch: 7, Serial: 9, Uses: 1, End: end}),
			"/.headgate/code?why=expired&to=%2F", "code 7-9-1-7932", Expired},
	} {
		was := d.Counts[c.result].Load()
		res := send(d, c.target, "192.0.2.7", c.body)
		if res.StatusCode != 303 || res.Header.Get("Location") != c.to || res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %.60s: %d to %q", c.target, c.body, res.StatusCode, res.Header.Get("Location"))
		}
		if d.Counts[c.result].Load() != was+1 {
			t.Errorf("%s %.60s: not counted as %s", c.target, c.body, Words()[c.result])
		}
		next := httptest.NewRequest("GET", "/", nil)
		for _, x := range res.Cookies() {
			next.AddCookie(x)
		}
		if id, _, _ := d.Of(next); id != c.id {
			t.Errorf("%s %.60s: the visitor is %q", c.target, c.body, id)
		}
	}
	get := func(method, target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		d.Take(false, http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(method, target, nil))
		return w
	}
	for target, want := range map[string]string{
		"/shop/.headgate/code?invitation=" + good:              "/shop",
		"/shop/.headgate/code?to=%2Fx%3Fa&invitation=" + good:  "/x?a",
		"/shop/.headgate/code?to=%2Fx%3Fa&invitation=x" + good: "/invited?why=wrong&next=%2Fx%3Fa",
	} {
		if w := get("GET", target); w.Code != 303 || w.Header().Get("Location") != want ||
			(w.Header()["Set-Cookie"] == nil) != strings.Contains(want, "wrong") {
			t.Errorf("a link to the form with a code: %d %v", w.Code, w.Header())
		}
	}
	for target, want := range map[string]string{
		"/.headgate/code": `back to /, ""`,
		"/shop/.headgate/code?why=used&to=%2Fshop%2F": `back to /shop/, "used"`,
		"/shop/.headgate/code":                        `back to /shop, ""`, // a link in a mail
		"/.headgate/code?why=limited&to=x":            `back to /x, "limited"`,
		"/.headgate/code?why=%3Cb%3E&to=//x":          `back to /x, ""`,
		"/.headgate/code?why=accepted":                `back to /, ""`,
	} {
		if w := get("GET", target); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if w := get("DELETE", "/.headgate/code"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d", w.Code)
	}
	for _, other := range []string{"/code", "/.headgate/codes", "/.headgate/code/", "/x/..%2f.headgate/code"} {
		if w := get("GET", other); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", other, w.Code)
		}
	}
}

// A network that sends wrong codes is not looked at for a while, and others are.
// TestTheFormIsOnThisHost: a star in a folder matches what browsers read as the name of another host, or what
// they would not send as it is.
func TestTheFormIsOnThisHost(t *testing.T) {
	d := testDesk()
	d.SignIn = OwnPage
	d.Form.Places = route.New([]route.Route{{Path: "/*/buy"}}, false)
	for target, want := range map[string]string{
		"/%5Cevil.example/buy?invitation=1": "/evil.example/buy/.headgate/code?why=wrong&to=%2F%255Cevil.example%2Fbuy",
		"/a%25b/buy?invitation=1":           "/a%25b/buy/.headgate/code?why=wrong&to=%2Fa%2525b%2Fbuy",
		"/a%25b/buy/.headgate/code?to=%2Fx": "/a%25b/buy/.headgate/code?why=wrong&to=%2Fx",
		"/ä%20b/buy/.headgate/code?to=%2Fx": "/%C3%A4%20b/buy/.headgate/code?why=wrong&to=%2Fx",
	} {
		res := send(d, target, "192.0.2.7", "invitation=1")
		if to := res.Header.Get("Location"); to != want {
			t.Errorf("%s leads to %s, want %s", target, to, want)
		}
	}
}

func TestTypedCodesAreLimitedByNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDesk()
		good := "invitation=" + d.Key.New(Code{Batch: 7, Serial: 9, Uses: 1, End: EndAt(noon()) + 5})
		code := func(addr, body string) string { return send(d, "/.headgate/code", addr, body).Header.Get("Location") }
		const wrong, over = "/.headgate/code?why=wrong&to=%2F", "/.headgate/code?why=limited&to=%2F"
		for i := range MostWrong + 1 {
			if to := code("192.0.2.7", "invitation=11111"); to != wrong {
				t.Fatalf("after %d: %s", i, to)
			}
		}
		for _, body := range []string{"invitation=11111", good} {
			if to := code("192.0.2.7", body); to != over {
				t.Errorf("a network with %d wrong ones is sent to %s", MostWrong+1, to)
			}
		}
		if n := d.Counts[Limited].Load(); n != 2 {
			t.Errorf("%d are counted as limited", n)
		}
		for range 3 * MostWrong { // nor those that a page elsewhere makes a browser send
			r := httptest.NewRequest("POST", "/.headgate/code", strings.NewReader("invitation=11111"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.RemoteAddr = "198.51.100.7:1234"
			w := httptest.NewRecorder()
			if d.Take(false, http.NotFoundHandler()).ServeHTTP(w, r); w.Code != http.StatusForbidden {
				t.Fatalf("a page elsewhere: %d %v", w.Code, w.Header())
			}
		}
		for i := range 3 * MostWrong { // right ones do not count
			if to := code("198.51.100.7", good); to != "/" {
				t.Fatalf("after %d of another network: %s", i, to)
			}
		}
		for i := range 3 * MostWrong {
			if to := code("127.0.0.1", "invitation=11111"); to != wrong { // a proxy that is not trusted
				t.Fatalf("after %d of this machine: %s", i, to)
			}
		}
		time.Sleep(2 * time.Minute)
		if to := code("192.0.2.7", good); to != "/" {
			t.Errorf("two minutes later: %s", to)
		}
	})
}

func TestWhatIsRevoked(t *testing.T) {
	k := testKey()
	c := Code{Batch: 7, Serial: 9, Uses: 1, End: EndAt(noon())}
	for text, want := range map[string]string{
		"7": "7", "7-9": "7-9", k.New(c): "7-9", strings.ToLower(k.New(c)): "7-9", "65535-2097151": "65535-2097151",
		"": "", "0": "", "07": "", "+7": "", "7-": "", "7-0": "", "-7": "", "7-9-1": "", "65536": "", "7-2097152": "",
		NewKey("tea", k.secret).New(c): "", "99999999999999999999": "",
	} {
		got, err := k.Target(text)
		if err == nil && got.String() != want || err != nil && want != "" {
			t.Errorf("%q is %s, %v", text, got, err)
		}
	}
	all := NewRevoked([]string{"10", "9-2", "rubbish", "9-10"})
	for c, want := range map[Code]bool{
		{Batch: 10, Serial: 5}: true, {Batch: 9, Serial: 2}: true, {Batch: 9, Serial: 3}: false,
	} {
		if all.Has(c) != want || (RevokedSet{}).Has(c) {
			t.Errorf("%s is revoked: %v", c, !want)
		}
	}
	next, err := all.Change([]Target{{Batch: 1}, {9, 10}}, []Target{{9, 2}, {9, 10}, {Batch: 5}})
	if got := strings.Join(next.Names(), " "); got != "1 9-10 10" || err != nil || len(all.Names()) != 3 {
		t.Errorf("%s, before %v: %v", got, all.Names(), err)
	}
	var many []Target
	for i := range MaxRevoked {
		many = append(many, Target{2, i + 1})
	}
	full, err := RevokedSet{}.Change(many, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := full.Change([]Target{{Batch: 1}}, nil); !errors.Is(err, ErrTooMany) {
		t.Errorf("more than %d: %v", MaxRevoked, err)
	}
	if _, err := full.Change([]Target{{Batch: 1}}, []Target{{2, 1}}); err != nil {
		t.Error(err)
	}
}
