package rules

import (
	"net/netip"
	"testing"
)

// documented is an expression of Cloudflare's documentation, and requests of which it is true
// and is not, by what is said there.
type documented struct {
	expression string
	yes, no    []Request
}

func get(url string, headers ...string) Request { return ask("GET https://"+url, headers...) }

func from(address string) Request {
	r := get("example.com/")
	r.From = netip.MustParseAddr(address)
	return r
}

// filters is the request of Cloudflare's examples of arrays.
var filters = ask("GET https://example.com/?filter=waf&filter=botm&filter=cdn")

func check(t *testing.T, all []documented) {
	t.Helper()
	for _, tt := range all {
		e, err := Compile(tt.expression, Env{Lists: lists(t)})
		if err != nil {
			t.Errorf("%s\n%v", tt.expression, err)
			continue
		}
		for _, r := range tt.yes {
			if !e.Match(r) {
				t.Errorf("%s: not true of %s %s from %s", tt.expression, r.Host, r.URL, r.From)
			}
		}
		for _, r := range tt.no {
			if e.Match(r) {
				t.Errorf("%s: true of %s %s from %s", tt.expression, r.Host, r.URL, r.From)
			}
		}
	}
}

func TestDocumentedOperators(t *testing.T) {
	check(t, []documented{
		// rules-language/operators
		{`http.request.uri.path eq "/articles/2008/"`,
			[]Request{get("a.example/articles/2008/?x=1")},
			[]Request{get("a.example/articles/2008")}},
		{`ip.src ne 203.0.113.0`, []Request{from("203.0.113.1")}, []Request{from("203.0.113.0")}},
		{`http.request.uri.path contains "/articles/"`,
			[]Request{get("a.example/x/articles/y")}, []Request{get("a.example/x/Articles/y")}},
		{`http.request.uri.path matches "^/articles/200[7-8]/$"`,
			[]Request{get("a.example/articles/2007/")}, []Request{get("a.example/articles/2009/")}},
		{`http.request.uri.path ~ "^/articles/200[7-8]/$"`,
			[]Request{get("a.example/articles/2008/")},
			[]Request{get("a.example/articles/2008/x")}},
		{`ip.src in { 203.0.113.0 203.0.113.1 }`, []Request{from("203.0.113.1")},
			[]Request{from("203.0.113.2")}},
		{`ends_with(http.request.uri.path, ".html")`,
			[]Request{get("a.example/welcome.html")}, []Request{get("a.example/welcome.html5")}},
		{`lower(http.request.uri.path) contains "/wp-login.php"`,
			[]Request{get("a.example/WP-Login.php")}, []Request{get("a.example/wp-logout.php")}},
		{`http.request.full_uri wildcard "https://example.com/a/*"`,
			[]Request{get("example.com/a/"), get("example.com/a/page.html"),
				get("example.com/a/sub/folder/?name=value"),
				get("Example.com/A/x")},
			[]Request{get("example.com/ab/"), get("example.com/b/page.html"), get("sub.example.com/a/")}},
		{`http.request.full_uri wildcard "*.example.com/*/page.html"`,
			[]Request{ask("GET http://sub.example.com/folder/page.html"),
				get("admin.example.com/team/page.html"),
				get("admin.example.com/team/subteam/page.html")},
			[]Request{get("example.com/ab/page.html"), get("sub.example.com/folder2/page.html?s=value"),
				get("sub.example.com/a/")}},
		{`http.request.full_uri strict wildcard "https://example.com/A/*"`,
			[]Request{get("example.com/A/x")}, []Request{get("example.com/a/x")}},
		{`not ( http.host eq "www.cloudflare.com" and ip.src in {203.0.113.0/24} )`,
			[]Request{get("www.cloudflare.com/"), from("203.0.113.9")}, nil},
		{`http.host eq "example.com" xor ip.src in {203.0.113.0/24}`,
			[]Request{from("203.0.114.9")}, // one of the two, not both
			[]Request{from("203.0.113.9")}},
		{`(
 (http.host eq "api.example.com" and http.request.uri.path eq "/api/v2/auth") or
 (http.host matches "^(www|store|blog)\.example\.com" and http.request.uri.path contains "wp-login.php") or
 ip.src in {198.51.100.0/24}
) and not ip.src in {11.22.33.0/24}`,
			[]Request{get("api.example.com/api/v2/auth"), get("blog.example.com/wp-login.php")},
			[]Request{get("api.example.com/"), get("blogXexample.com/wp-login.php")}},
	})
}

// TestFindingsOfACDN: a country and a score count when the CDN has set one header, and are missing otherwise.
// What is missing is equal to nothing and unequal to nothing.
func TestFindingsOfACDN(t *testing.T) {
	country := func(all ...string) Request { return get("x.example/", all...) }
	none := []Request{country(), country("Cf-Ipcountry: "), country("Cf-Ipcountry: GB", "Cf-Ipcountry: FR"),
		country("Cf-Ipcountry: GB, FR"), country("Cf-Ipcountry: gb"), country("Cf-Ipcountry: G"),
		country("Cf-Ipcountry: GBR")}
	noScore := []Request{country(), country("Cf-Bot-Score: "), country("Cf-Bot-Score: 30", "Cf-Bot-Score: 99"),
		country("Cf-Bot-Score: 99, 1"), country("Cf-Bot-Score: -1"), country("Cf-Bot-Score: +99"),
		country("Cf-Bot-Score: 101"), country("Cf-Bot-Score: 4294967395"), country("Cf-Bot-Score: 99.0"),
		country("Cf-Bot-Score: 0x63")}
	bot, person := country("Cf-Bot-Score: 29"), country("Cf-Bot-Score: 30")
	check(t, []documented{
		{`ip.src.country in {"GB" "FR"}`, []Request{country("Cf-Ipcountry: GB")},
			append(none, country("Cf-Ipcountry: DE"))},
		{`ip.src.country ne "GB"`, []Request{country("Cf-Ipcountry: T1")}, append(none, country("Cf-Ipcountry: GB"))},
		{`not ip.src.country in {"GB" "FR"}`, append(none, country("Cf-Ipcountry: DE")),
			[]Request{country("Cf-Ipcountry: FR")}},
		{`lower(ip.src.country) == "gb"`, []Request{country("Cf-Ipcountry: GB")}, none},
		{`cf.bot_management.score lt 30`, []Request{bot}, append(noScore, person)},
		{`cf.bot_management.score != 30`, []Request{bot}, append(noScore, person)},
		{`cf.bot_management.score in {1..29}`, []Request{bot}, append(noScore, person)},
		{`not cf.bot_management.score ge 30`, append(noScore, bot), []Request{person}},
	})
}

func TestDocumentedValues(t *testing.T) {
	check(t, []documented{
		// rules-language/values
		{`http.user_agent matches "a\"b"`, []Request{get("x/", `User-Agent: xa"b`)},
			[]Request{get("x/")}},
		{`http.user_agent matches r##"a"#b"##`, []Request{get("x/", `User-Agent: a"#b`)},
			[]Request{get("x/")}},
		{`http.request.uri.path matches r"/api/login\.aspx$"`,
			[]Request{get("x.example/v1/api/login.aspx")},
			[]Request{get("x.example/api/loginXaspx")}},
		{`ssl`, []Request{get("x.example/")}, []Request{ask("GET http://x.example/")}},
		{`not ssl`, []Request{ask("GET http://x.example/")}, []Request{get("x.example/")}},
		{`any(http.request.headers.names[*] == "content-type")`,
			[]Request{get("x.example/", "Content-Type: text/plain")},
			[]Request{get("x.example/", "Accept: */*")}},
		{`any(lower(http.request.headers.names[*])[*] == "content-type")`,
			[]Request{get("x.example/", "Content-Type: text/plain")}, []Request{get("x.example/")}},
		{`http.request.headers["accept"][0] == "application/json"`,
			[]Request{get("x.example/", "Accept: application/json")},
			[]Request{get("x.example/", "Accept: */*")}},
		{`any(http.request.headers["accept"][*] == "application/json")`,
			[]Request{get("x.example/", "Accept: text/html", "Accept: application/json")},
			[]Request{get("x.example/"), get("x.example/", "Accept: text/plain")}},
		{`all(http.request.headers["content-type"][*] == "application/json")`,
			[]Request{get("x.example/", "Content-Type: application/json")},
			[]Request{get("x.example/"),
				get("x.example/", "Content-Type: application/json", "Content-Type: x")}},
		{`len(http.request.uri.args["filter"][1]) == 4`, []Request{filters},
			[]Request{get("x.example/?filter=waf")}},
		{`all(len(http.request.uri.args["filter"][*])[*] in {3 4})`, []Request{filters},
			[]Request{get("x.example/?filter=abcde")}},
		{`all(not len(http.request.uri.args["filter"][*])[*] in {3 4})`,
			[]Request{get("x.example/?filter=abcde")}, []Request{filters}},
		{`len(http.request.uri.args["filter"]) >= 0`, []Request{filters},
			[]Request{get("x.example/")}},
		{`not len(http.request.uri.args["order"]) >= 0`, []Request{filters},
			[]Request{get("x.example/?order=1")}},
		{`(ip.src in $office_network)`,
			[]Request{from("192.0.2.7"), from("2001:db8::1"), from("198.51.100.7")},
			[]Request{from("192.0.2.8"), from("2001:db9::1"), from("198.51.100.8")}},
		{`http.host in {"example.com" "example.net"}`, []Request{get("example.net/")},
			[]Request{get("example.org/")}},
		{`ip.src in {198.51.100.1 198.51.100.3..198.51.100.7 192.0.2.0/24 2001:0db8::/32}`,
			[]Request{from("198.51.100.1"), from("198.51.100.5"), from("192.0.2.255"),
				from("2001:db8:ffff::"), from("::ffff:192.0.2.1")},
			[]Request{from("198.51.100.2"), from("192.0.3.0"), from("2001:db9::")}},
		{`len(http.request.uri.path) in {3..5 9}`,
			[]Request{get("x/ab"), get("x/abcd"), get("x/abcdefgh")},
			[]Request{get("x/a"), get("x/abcde")}},
		// rules-language/functions
		{`lower(http.host) == "www.cloudflare.com"`, []Request{get("WWW.cloudflare.com/")}, nil},
		{`len(http.host) == 11`, []Request{get("example.com/")}, []Request{get("example.co/")}},
		{`starts_with(http.request.uri.path, "/blog")`, []Request{get("x/blog/first-post")},
			[]Request{get("x/Blog")}},
		{`upper(http.host) == "WWW.CLOUDFLARE.COM"`, []Request{get("www.cloudflare.com/")}, nil},
		// rules-language/fields
		{`http.request.cookies["app"][0] == "test"`, []Request{get("x/", "Cookie: a=b; app=test")},
			[]Request{get("x/")}},
		{`any(http.request.uri.args["search"][*] == "red+apples")`,
			[]Request{get("x/?a=1&search=red+apples")}, nil},
		{`any(http.request.uri.args.names[*] == "search")`, []Request{get("x/?search=1")},
			[]Request{get("x/?find=search")}},
		{`any(http.request.uri.args.values[*] == "red+apples")`, []Request{get("x/?s=red+apples")},
			[]Request{get("x/?red+apples")}},
		{`any(len(http.request.headers.values[*])[*] gt 10)`,
			[]Request{get("x/", "A: longer than that")}, []Request{get("x/", "A: short")}},
		{`http.request.uri.path.extension == "mp3"`,
			[]Request{get("x/foo.mp3"), get("x/.foo.mp3"), get("x/foo.MP3")},
			[]Request{get("x/.mp3"), get("x/foo"), get("x/foo.mp3/")}},
		{`http.request.uri.path.extension == ""`,
			[]Request{get("x/foo"), get("x/.mp3"), get("x/foo.")}, []Request{get("x/foo.tar.bz2")}},
		{`http.request.version in {"HTTP/1.1" "HTTP/3"}`, []Request{get("x/")}, nil},
		// waiting-room/additional-options/waiting-room-rules
		{`starts_with(http.request.uri.path, "/bypassme") or ends_with(http.request.uri.path, ".js") or ` +
			`ends_with(http.request.uri.path, ".css") or ends_with(http.request.uri.path, ".png")`,
			[]Request{get("x/bypassme/a"), get("x/a.css"), get("x/b.png?1")},
			[]Request{get("x/"), get("x/a.html")}},
		{`ip.src in $bypass_ip_list`, []Request{from("10.0.0.1")}, []Request{from("10.0.0.2")}},
		{`((http.request.uri.path contains "/xmlrpc.php") or (http.request.uri.path
contains "/wp-login.php") or (http.request.uri.path contains "/wp-admin/"
and not http.request.uri.path contains "/wp-admin/admin-ajax.php" and not
http.request.uri.path contains "/wp-admin/theme-editor.php")) and
ip.src ne 192.0.2.9`,
			[]Request{get("x/xmlrpc.php"), get("x/wp-admin/")},
			[]Request{get("x/wp-admin/admin-ajax.php"), get("x/")}},
	})
}
