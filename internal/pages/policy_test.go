package pages

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// hostile are policies with which an own page would have rights where an operator looks at it.
func hostile() []string {
	return []string{
		"sandbox allow-scripts allow-same-origin",
		"default-src 'self'; sandbox allow-scripts allow-same-origin",
		"  SandBox\tallow-scripts   allow-same-origin ; default-src *",
		"default-src 'self',sandbox allow-same-origin allow-scripts",
		"default-src 'self' , ; ,; sandbox allow-same-origin allow-scripts;;",
		"sandbox",
		";sandbox allow-same-origin",
		"frame-ancestors *",
		"img-src *; Frame-Ancestors https://other.example",
		"report-uri https://other.example/",
		"script-src 'none';report-to other",
	}
}

// A zone token chooses the policy of a page, and once took over the session of the operator who
// looked at its preview: its policy held a sandbox, and browsers obey the first.
func TestPreviewStaysInTheSandbox(t *testing.T) {
	own, err := ParseCustom([]byte("<script>1</script>"))
	if err != nil {
		t.Fatal(err)
	}
	const policy = "Content-Security-Policy"
	for _, p := range append(hostile(), "", "default-src *") {
		page, err := New(Config{Custom: own, Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		got, err := page.Preview("Shop", nil)
		if err != nil {
			t.Fatal(err)
		}
		directives := strings.FieldsFunc(strings.Join(got.Header[policy], ","), func(r rune) bool {
			return strings.ContainsRune(";,", r)
		})
		var boxes []string
		for i, d := range directives {
			if d = strings.Join(strings.Fields(strings.ToLower(d)), " "); strings.Contains(d, "sandbox") {
				boxes = append(boxes, d)
				if i != 0 {
					t.Errorf("%q: a sandbox is not the first directive: %q", p, got.Header[policy])
				}
			}
			if strings.Contains(d, "allow-same-origin") || strings.Contains(d, "report") {
				t.Errorf("%q: the preview has %q", p, d)
			}
		}
		if !slices.Equal(boxes, []string{"sandbox allow-scripts"}) {
			t.Errorf("%q: the sandboxes are %q", p, boxes)
		}
		visitors := strings.ToLower(strings.Join(page.Header(&headgate.View{})[policy], ","))
		if strings.Contains(visitors, "sandbox") || strings.Contains(visitors, "report-") ||
			strings.Count(visitors, "frame-ancestors") != 1 || !strings.HasSuffix(visitors, notFramed) {
			t.Errorf("%q: visitors get %q", p, visitors)
		}
	}
}

// Every answer that an operator may look at is in a sandbox and is not sniffed, whatever it shows.
func TestPreviewOfAnyStateIsInTheSandbox(t *testing.T) {
	own, err := ParseCustom([]byte("<p>wait"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Config{{}, {Custom: own}, {Custom: own, Policy: "default-src *", Framed: true}} {
		page, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []string{"", "state=closed", "state=moved", "state=left", "state=opens_at",
			"queueing_method=passthrough", "event=prequeueing", "event=started"} {
			r, _ := http.NewRequest("GET", "/?"+q, nil)
			got, err := page.Preview("Shop", r.URL.Query())
			if err != nil {
				t.Fatal(q, err)
			}
			if csp := got.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "sandbox") ||
				!strings.HasSuffix(csp, "frame-ancestors 'self'") ||
				got.Header.Get("X-Content-Type-Options") != "nosniff" ||
				!strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") {
				t.Errorf("%q: %v", q, got.Header)
			}
		}
	}
}

func TestCheckPolicy(t *testing.T) {
	for _, p := range hostile() {
		if CheckPolicy(p) == nil {
			t.Errorf("%q is not rejected", p)
		}
		if clean := CleanPolicy(p); CheckPolicy(clean) != nil {
			t.Errorf("%q is cleaned to %q", p, clean)
		}
	}
	for in, want := range map[string]string{
		"":                   "",
		"default-src 'self'": "default-src 'self'",
		"img-src https://sandbox.example/report-uri;script-src 'self'": "" +
			"img-src https://sandbox.example/report-uri;script-src 'self'",
		"default-src 'self' ; sandbox x;img-src *, frame-ancestors *,, font-src *": "" +
			"default-src 'self'; img-src *, font-src *",
	} {
		if got := CleanPolicy(in); got != want {
			t.Errorf("CleanPolicy(%q) = %q, want %q", in, got, want)
		}
	}
}

// A page with a third party loads exactly what that documents, and headgate's own script. Whatever else
// the policy has stays. A policy that an operator wrote is left alone.
func TestPoliciesOfThirdParties(t *testing.T) {
	own, err := ParseCustom([]byte("{{{turnstile}}}"))
	if err != nil {
		t.Fatal(err)
	}
	sources := func(c Config) map[string]string {
		page, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for d := range strings.SplitSeq(page.Header(&headgate.View{}).Get(policyName), "; ") {
			name, values, _ := strings.Cut(d, " ")
			if _, twice := all[name]; twice {
				t.Errorf("%+v: two directives %s", c, name)
			}
			all[name] = values
		}
		return all
	}
	for kind, hosts := range map[string]map[string]string{
		"turnstile": {"script-src": "https://challenges.cloudflare.com", "frame-src": "https://challenges.cloudflare.com"},
		"hcaptcha": {"script-src": "https://hcaptcha.com https://*.hcaptcha.com",
			"frame-src":   "https://hcaptcha.com https://*.hcaptcha.com",
			"style-src":   "https://hcaptcha.com https://*.hcaptcha.com",
			"connect-src": "https://hcaptcha.com https://*.hcaptcha.com"},
		"recaptcha": {"script-src": "https://www.google.com/recaptcha/ https://www.gstatic.com/recaptcha/",
			"frame-src": "https://www.google.com/recaptcha/ https://recaptcha.google.com/recaptcha/"},
	} {
		for _, c := range []Config{{}, {Custom: own}} {
			without := sources(c)
			c.Challenge = kind
			for name, got := range sources(c) {
				want := without[name]
				if x := hosts[name]; x != "" {
					if want == "" && c.Custom != nil { // without it an own page could load less than before
						want = "'self'"
					}
					if want = strings.TrimSpace(want + " " + x); name == "script-src" && !strings.Contains(want, "'self'") {
						want += " 'self'"
					}
				}
				if got != want {
					t.Errorf("%s: %s %s, want %s", kind, name, got, want)
				}
			}
		}
		const policy = "script-src 'none'"
		if got := sources(Config{Custom: own, Policy: policy, Challenge: kind}); got["script-src"] != "'none'" || len(got) != 2 {
			t.Errorf("%s: %v", kind, got)
		}
	}
	if got := sources(Config{Challenge: "work"}); got["worker-src"] != "'self'" || got["script-src"] != sources(Config{})["script-src"] {
		t.Error(got)
	}
}

// Cloudflare's variable is the element and the script of the widget, with the folder of the room.
func TestTheVariableOfAWidget(t *testing.T) {
	own, err := ParseCustom([]byte("<p>{{{turnstile}}}"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := New(Config{Custom: own, Challenge: "turnstile"})
	if err != nil {
		t.Fatal(err)
	}
	for challenge, want := range map[string]string{
		"":     "<p>",
		"null": `<p><div id="headgate-challenge"></div><script src="/a&#34;b/.headgate/work.js" defer></script>`,
	} {
		var b strings.Builder
		v := &headgate.View{Challenge: challenge, HereURL: `/a"b/.headgate/here.gif`}
		if err := page.Render(&b, v); err != nil || b.String() != want {
			t.Errorf("%v: %s, want %s", err, b.String(), want)
		}
	}
}
