package rules

import (
	"flag"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/slot"
)

func TestMain(m *testing.M) {
	flag.Bool("rewrite", false, "write the golden files anew")
	flag.Parse()
	os.Exit(m.Run())
}

// ask makes a request of a line such as "GET https://shop.example/a?b" and headers.
func ask(line string, headers ...string) Request {
	method, url, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, url, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return Request{
		Request: r, Path: r.URL.Path, Secure: strings.HasPrefix(url, "https"),
		From: netip.MustParseAddr("192.0.2.7"),
	}
}

// lists are those of the tests.
func lists(t testing.TB) map[string]*List {
	t.Helper()
	office, err := NewAddressList(
		[]string{"192.0.2.0/29", "10.0.0.1", "2001:db8::/32", "198.51.100.3..198.51.100.7"})
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := NewTextList([]string{"shop.example", "www.shop.example"})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*List{"office_network": office, "bypass_ip_list": office, "hosts": hosts}
}

// TestFields says what each field is of one request.
func TestFields(t *testing.T) {
	r := ask("POST https://Shop.Example:8443/caf%C3%A9/a%20b/x(1).TXT?q=%20a&empty&q=b",
		"User-Agent: Mozilla/5.0",
		"Referer: https://a.example/", "Cookie: a=1; b=2", "Cookie: b=3", "X-Forwarded-For: 10.0.0.1",
		"X-Forwarded-For: 10.0.0.2", "Accept-Language: de")
	r.Proto, r.ProtoMajor = "HTTP/2.0", 2
	for expression, want := range map[string]string{
		`http.host`:                                  "shop.example",
		`http.request.method`:                        "POST",
		`http.request.version`:                       "HTTP/2",
		`http.request.uri`:                           "/caf%C3%A9/a%20b/x(1).TXT?q=%20a&empty&q=b",
		`http.request.uri.path`:                      "/caf%C3%A9/a%20b/x(1).TXT",
		`http.request.uri.path.extension`:            "txt",
		`http.request.uri.query`:                     "q=%20a&empty&q=b",
		`http.request.full_uri`:                      "https://shop.example/caf%C3%A9/a%20b/x(1).TXT?q=%20a&empty&q=b",
		`raw.http.request.uri`:                       "/caf%C3%A9/a%20b/x(1).TXT?q=%20a&empty&q=b",
		`raw.http.request.uri.path`:                  "/caf%C3%A9/a%20b/x(1).TXT",
		`http.user_agent`:                            "Mozilla/5.0",
		`http.referer`:                               "https://a.example/",
		`http.cookie`:                                "a=1; b=2; b=3",
		`http.x_forwarded_for`:                       "10.0.0.1, 10.0.0.2",
		`http.request.headers["accept-language"][0]`: "de",
		`http.request.headers["host"][0]`:            "Shop.Example:8443",
		`http.request.headers["cookie"][1]`:          "b=3",
		`http.request.cookies["b"][1]`:               "3",
		`http.request.uri.args["q"][1]`:              "b",
		`http.request.uri.args["empty"][0]`:          "",
		`http.request.uri.args.names[1]`:             "empty",
		`http.request.uri.args.values[2]`:            "b",
		`lower(http.request.uri.path)`:               "/caf%c3%a9/a%20b/x(1).txt",
		`upper(http.request.method)`:                 "POST",
	} {
		n, err := parse(expression+` == ""`, Env{})
		if err != nil {
			t.Error(err)
			continue
		}
		in := input{Request: r}
		if got, ok := in.text(n.args[0]); !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", expression, got, ok, want)
		}
	}
}

// TestLanguage has the small things: what is not there is not equal, not unequal and nothing
// else either; which operator binds more; how literals are written.
func TestLanguage(t *testing.T) {
	r := ask("GET http://x/?a=1", `User-Agent: AB"\`)
	for expression, want := range map[string]bool{
		`http.request.headers["x"][0] == ""`:                false,
		`http.request.headers["x"][0] != "a"`:               false,
		`not http.request.headers["x"][0] == "a"`:           true,
		`http.request.headers["x"][0] in {""}`:              false,
		`len(http.request.headers["x"][0]) >= 0`:            false,
		`len(http.request.headers["x"]) == 0`:               false,
		`len(http.request.uri.args.names) == 1`:             true,
		`len(http.request.uri.args[""]) == 0`:               false,
		`lower(http.request.headers["x"][0]) == ""`:         false,
		`starts_with(http.request.headers["x"][0], "")`:     false,
		`not starts_with(http.request.headers["x"][0], "")`: true,
		`http.request.uri.args["a"][1] == "1"`:              false,
		`any(http.request.headers["x"][*] != "a")`:          false,
		`all(http.request.headers["x"][*] == "a")`:          false,
		`http.user_agent == ""`:                             false,
		`http.referer == "" and http.cookie == ""`:          true,
		`http.request.uri.args["a"][0] wildcard "*"`:        true,
		`http.request.uri.args["b"][0] wildcard "*"`:        false,
		`http.request.uri.args["a"][0] matches r""`:         true,
		`http.request.uri.args["b"][0] matches r""`:         false,
		`true`:                    true,
		`false`:                   false,
		`!false && !!true`:        true,
		`true xor true xor true`:  true,
		`true or true xor true`:   true,
		`not true or true`:        true,
		`false and true or true`:  true,
		`true or true and false`:  true,
		`true xor true and false`: true,
		`http.request.method in {"POST" "\x47\105T"}`:                     true,
		`http.request.method == r#"GET"#`:                                 true,
		`http.request.method=="GET"&&http.host=="x"`:                      true,
		"\t\r\n http.request.method\neq\n\"GET\"\n":                       true,
		`any(starts_with(lower(http.request.uri.args.names[*])[*], "a"))`: true,
		`any(len(http.request.uri.args.names[*])[*] < 2)`:                 true,
		`any(not http.request.uri.args.names[*] == "a")`:                  false,
		`http.request.method < "GEU" and http.host >= "x"`:                true,
		`http.request.method > "GET"`:                                     false,
		`http.user_agent == "\x41\102\"\\"`:                               true,
		`http.request.method matches "[\"G]E[[:upper:]]"`:                 true,
	} {
		e, err := Compile(expression, Env{})
		if err != nil {
			t.Error(err)
			continue
		}
		if got := e.Match(r); got != want {
			t.Errorf("%s: got %v", expression, got)
		}
	}
}

func TestSet(t *testing.T) {
	s, err := New([]Rule{
		{Action: Bypass, Expression: `http.request.uri.path == "/off"`, Disabled: true},
		{Action: Bypass, Expression: `starts_with(http.request.uri.path, "/pay/")`},
		{Action: Deny, Expression: `starts_with(http.request.uri.path, "/pay/admin")`},
		{Action: Deny, Expression: `http.request.method == "DELETE"`, Description: "nobody"},
		{Action: Lane, Lane: "vip", Share: 5, Expression: `http.request.cookies["vip"][0] == "1"`},
		{Action: Lane, Lane: "members", Share: 20, Expression: `http.request.cookies["member"][0] == "1"`},
		{Action: Lane, Lane: "vip", Share: 5, Expression: `http.request.cookies["star"][0] == "1"`},
	}, Env{})
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]Verdict{
		"GET http://x/off":          {Rule: -1},
		"GET http://x/":             {Rule: -1},
		"GET http://x/pay/admin":    {Action: Bypass, Rule: 1},
		"DELETE http://x/":          {Action: Deny, Rule: 3},
		"DELETE http://x/pay/hooks": {Action: Bypass, Rule: 1},
	} {
		if diff := cmp.Diff(want, s.Match(ask(line))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
	for cookie, want := range map[string]Verdict{
		"vip": {Lane, 4, 0}, "member": {Lane, 5, 1}, "star": {Lane, 6, 0},
	} {
		if got := s.Match(ask("GET http://x/", "Cookie: "+cookie+"=1")); got != want {
			t.Errorf("%s: got %v, want %v", cookie, got, want)
		}
	}
	lanes := []slot.Lane{{Name: "vip", Share: 5}, {Name: "members", Share: 20}}
	if diff := cmp.Diff(lanes, s.Lanes()); diff != "" {
		t.Error(diff)
	}
	if got := new(Set).Match(ask("GET http://x/")); got.Action != None || got.Rule != -1 {
		t.Errorf("an empty set says %v", got)
	}
}

func TestSetSaysAllThatIsWrong(t *testing.T) {
	long := strings.Repeat("x", maxDescription+1)
	_, err := New([]Rule{
		{Expression: "true"},
		{Action: Lane, Expression: "true", Lane: "x"},
		{Action: Lane, Expression: "true", Lane: "x", Share: 100},
		{Action: Bypass, Expression: "true", Share: 1},
		{Action: Bypass, Expression: "tru", Description: long},
		{Action: Lane, Expression: "true", Lane: "a", Share: 50},
		{Action: Lane, Expression: "false", Lane: "b", Share: 50},
		{Action: Lane, Expression: "wrong", Lane: "c", Share: 50, Disabled: true},
		{Action: Lane, Expression: "true", Lane: "a", Share: 51},
		{Action: Lane, Expression: "true", Share: 1},
		{Action: Lane, Expression: "true", Lane: "a b", Share: 1},
		{Action: Deny, Expression: "true", Lane: "a"},
	}, Env{})
	for _, want := range []string{
		"rule 1: an action is missing", "rule 2: a lane with a share of 0",
		"rule 3: a lane with a share of 100",
		"rule 4: bypass with a ", "rule 5: 1:1: unknown field tru",
		"a description of 501 bytes",
		"rule 8: 1:1: unknown field wrong", "89 of all lanes together",
		"rule 9: the lane a has a share of 51 here and 50 in a rule before",
		`rule 10: a lane named ""`, `rule 11: a lane named "a b"`, "rule 12: deny with a lane",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if _, err := New(make([]Rule, maxRules+1), Env{}); err == nil {
		t.Error("201 rules")
	}
}

func TestActions(t *testing.T) {
	for a := Bypass; a <= Lane; a++ {
		if got, err := ParseAction(a.String()); got != a || err != nil {
			t.Errorf("%s: %v, %v", a, got, err)
		}
	}
	for _, name := range []string{"none", "", "Bypass"} {
		if a, err := ParseAction(name); err == nil {
			t.Errorf("%q: %v", name, a)
		}
	}
}

func TestLists(t *testing.T) {
	_, err := NewAddressList([]string{"10.0.0.1", "10.0.0.1/8", "::ffff:10.0.0.1",
		"10.0.0.9..10.0.0.1", "10.0.0.1..::1",
		"shop.example", "fe80::1%eth0", "10.0.0.0/33", ""})
	for _, want := range []string{`item 2, "10.0.0.1/8"`, "write 10.0.0.0/8", "item 3", "item 4",
		"item 5", "item 6", "item 7",
		"item 8", "item 9"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	many := make([]string, maxList+1)
	if _, err := NewTextList(many); err == nil {
		t.Error("a list of 100,001")
	}
	if _, err := NewAddressList(many); err == nil || strings.Contains(err.Error(), "item 1,") {
		t.Error("a list of 100,001 addresses")
	}
	for name, want := range map[string]bool{"a": true, "office_1": true, "": false, "A": false, "a-b": false,
		strings.Repeat("a", 51): false} {
		if got := CheckListName(name) == nil; got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// Match reports whether the expression is true of r.
func (e *Expression) Match(r Request) bool {
	in := input{Request: r}
	return in.truth(e.root)
}
