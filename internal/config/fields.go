package config

import (
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/wire"
)

// configFields connects the keys of the file to the fields of Config.
func configFields(c *Config) []field {
	return []field{
		one("listen", address(&c.Listen)),
		one("admin_listen", address(&c.AdminListen)),
		one("data", text(&c.Data, cleanData)),
		one("drain_delay", span(&c.DrainDelay, time.Second, 10*time.Minute, true)),
		{name: "tls", read: readTLS(&c.TLS)},
		list("trusted_proxies", &c.TrustedProxies, cleanPrefix),
		one("max_connections_per_address", whole(&c.MaxConnections, 1, maxUsers)),
		one("request_body_timeout", span(&c.BodyTimeout, time.Second, time.Hour, false)),
		one("request_body_rate", whole(&c.BodyRate, 1, 1<<30)),
		one("response_write_timeout", span(&c.WriteTimeout, time.Second, time.Hour, false)),
		{name: "cluster", read: readCluster(c)},
		{name: "engine", read: readEngine(c)},
		{name: "limits", read: readLimits(c)},
		{name: "plans", read: readPlans(c)},
		{name: "queues", read: readQueues(c)},
		{name: "webhooks", read: readWebhooks(c)},
		{name: "envoy", read: readEnvoy(c)},
		{name: "decide", read: readDecide(c)},
		{name: "lists", read: readLists(c)},
		{name: "crawlers", read: readCrawlers(c)},
		group("analytics", analyticsFields(&c.Analytics)),
		{name: "traces", read: readTraces(c)},
		{name: "turnstile", read: readTurnstile(c)},
		{name: "zones", read: readZones(c)},
		{name: "rooms", read: roomList(&c.Rooms), example: "- name: shop",
			without: func() bool {
				return len(c.Limits) > 0 || len(c.Queues) > 0 || len(c.Zones) > 0 || c.Envoy != nil
			}},
	}
}

func roomList(dst *[]Room) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		before := d.Count()
		for key, item := range d.items(key, n) {
			r := defaultRoom()
			d.mapping(key, item, roomFields(&r))
			*dst = append(*dst, r)
		}
		if len(*dst) == 0 && d.Count() == before {
			d.fault(key, n, wrong("add at least one room: - name: shop", "has no room"))
		}
	}
}

// roomFields connects the keys of a room to the fields of Room.
func roomFields(r *Room) []field {
	return []field{
		required("name", "shop", nameText(&r.Name)),
		one("title", text(&r.Title, cleanTitle)),
		one("host", raw(&r.Host, cleanHost)),
		one("path", raw(&r.Path, cleanPath).as(absolute())),
		one("path_case_sensitive", truth(&r.PathCaseSensitive)),
		one("paths", word(&r.Paths, PathsClean, PathsAsTheyCome)),
		{name: "additional_routes", read: readRoutes(&r.AdditionalRoutes)},
		required("origin", "http://127.0.0.1:3000", httpURL(&r.Origin)),
		{name: "total_active_users", read: readActive(r), example: "200"},
		{name: "new_users_per_minute", read: readNew(r), example: "200"},
		group("origin_target", targetOfOriginFields(&r.Auto)),
		group("origin_signal", signalFields(&r.Auto)),
		one("session_duration", span(&r.SessionDuration, time.Second, 30*day, false)),
		one("session_renewal", truth(&r.SessionRenewal)),
		one("hard_end", span(&r.HardEnd, time.Second, 30*day, true)),
		one("method", word(&r.Method, "fifo", "random", "passthrough", "reject")),
		one("queue_all", truth(&r.QueueAll)),
		one("closed", truth(&r.Closed)),
		one("suspended", truth(&r.Suspended)),
		one("shadow", truth(&r.Shadow)),
		one("opens_at", moment(&r.OpensAt)),
		one("message", text(&r.Message, cleanMessage)),
		one("queueing_status_code", oneOf(&r.QueueingStatusCode, 200, 202, 429, 503)),
		one("refresh_header", truth(&r.RefreshHeader)),
		one("spread", truth(&r.Spread)),
		one("max_waiting", whole(&r.MaxWaiting, 1, maxUsers)),
		one("hold", span(&r.Hold, time.Second, 30*day, false)),
		one("hold_phone", span(&r.HoldPhone, time.Second, 30*day, false)),
		one("call_hold", span(&r.CallHold, time.Second, time.Hour, true)),
		one("poll_min", span(&r.PollMin, 100*time.Millisecond, 10*time.Minute, false)),
		one("poll_max", span(&r.PollMax, 100*time.Millisecond, 10*time.Minute, false)),
		{name: "rules", read: readRules(&r.Rules)},
		{name: "events", read: readEvents(&r.Events)},
		one("search_engine_crawler_bypass", truth(&r.CrawlerBypass)),
		{name: "exclude", read: readExclude(&r.Exclude)},
		{name: "cors", read: readCORS(&r.CORS)},
		group("join_limit", joinLimitFields(&r.JoinLimit)),
		{name: "challenge", read: readChallenge(&r.Challenge)},
		group("pass_sharing", passSharingFields(&r.PassSharing)),
		one("bind", text(&r.Bind, cleanBind)),
		{name: "identity", read: readIdentity(&r.Identity)},
		{name: "limits", read: readRoomLimits(&r.Limits)},
		one("fail_open_after", span(&r.FailOpenAfter, time.Second, day, true)),
		one("cookie_suffix", nameText(&r.CookieSuffix)),
		one("cookie_secure", raw(&r.CookieSecure, cleanSecure).
			as(schema.OneOf(CookieSecureAuto, CookieSecureAlways, CookieSecureNever))),
		one("cookie_samesite", word(&r.CookieSameSite, "lax", "strict", "none")),
		one("default_template_language", raw(&r.DefaultTemplateLanguage, cleanLanguage).
			as(schema.Any(schema.OneOf(pages.Languages()...), schema.Text("-", "")))),
		{name: "page", read: readPage(&r.Page)},
		{name: "checkout", read: readCheckout(&r.Checkout)},
	}
}

func readExclude(dst *Exclude) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		own := Exclude{MaxInFlight: exclude.MaxInFlight, MaxPerAddr: exclude.MaxPerAddr}
		defaults := true
		d.mapping(key, n, excludeFields(&own, &defaults))
		if defaults {
			own = own.WithDefaults()
		}
		*dst = own
	}
}

func excludeFields(e *Exclude, defaults *bool) []field {
	return []field{
		list("paths", &e.Paths, cleanExcludedPath, absolute()),
		list("methods", &e.Methods, cleanMethod),
		list("cidrs", &e.CIDRs, cleanPrefix),
		list("headers", &e.Headers, cleanHeader),
		one("upgrade", truth(&e.Upgrade)),
		one("max_in_flight", whole(&e.MaxInFlight, 1, maxUsers)),
		one("max_in_flight_per_address", whole(&e.MaxPerAddr, 1, maxUsers)),
		one("defaults", truth(defaults)),
	}
}

func joinLimitFields(j *JoinLimit) []field {
	return []field{
		one("amount", whole(&j.Amount, 0, maxUsers)),
		one("window", span(&j.Window, time.Second, day, false)),
		one("prefix_v4", whole(&j.PrefixV4, 1, 32)),
		one("prefix_v6", whole(&j.PrefixV6, 1, 128)),
		one("action", word(&j.Action, "lane", "refuse")),
		one("draw_weight", whole(&j.DrawWeight, 0, maxUsers)),
	}
}

func readChallenge(c *Challenge) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		d.mapping(key, n, challengeFields(c))
		third := (&challenge.Config{Kind: c.Kind}).Remote()
		switch keys := c.PublicKey != "" || c.SecretFile != ""; {
		case !d.good(key, key+".kind", key+".sitekey", key+".secret_file"):
		case c.Asked() == "" && c.On != challenge.Join:
			d.fault(key+".on", n, wrong("write kind: work, or another kind", "there is no challenge to ask"))
		case c.On == challenge.Draw && c.Endless():
			d.fault(key+".action", n, wrong("write action: log, or on: join", "nobody is kept out before a draw"))
		case third && (c.PublicKey == "" || c.SecretFile == ""):
			d.fault(key, n, wrong("write sitekey: and secret_file: as the third party gave them to you",
				"has a third party, and not both of its keys"))
		case !third && (keys || c.VerifyURL != "" || c.Hostnames != nil || c.FailOpen):
			d.fault(key, n, wrong("write kind: turnstile, hcaptcha or recaptcha, or take the other keys out",
				"has keys of a third party, and none"))
		case !third && c.Endless():
			d.fault(key+".action", n, wrong("write kind: turnstile, hcaptcha or recaptcha, or action: log",
				"nobody but a third party can keep those out who fail"))
		}
	}
}

func challengeFields(c *Challenge) []field {
	return append([]field{
		one("kind", word(&c.Kind, challenge.Kinds()...)),
		one("on", word(&c.On, challenge.Join, challenge.Claim, challenge.Draw)),
		one("action", word(&c.Action, challenge.Log, challenge.InfiniteQueue)),
	}, widgetFields(c)...)
}

func readTurnstile(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		found := map[string]Challenge{}
		d.mapping(key, n, turnstileFields(found))
		for _, mode := range TurnstileModes() {
			if w, ok := found[mode]; ok {
				c.Turnstile = append(c.Turnstile, Widget{mode, w})
			}
		}
	}
}

func turnstileFields(found map[string]Challenge) (all []field) {
	for _, mode := range TurnstileModes() {
		all = append(all, field{name: mode, read: func(d *decoder, key string, n *yaml.Node) {
			w := Challenge{Kind: challenge.Turnstile}
			d.mapping(key, n, widgetFields(&w))
			if d.good(key, key+".sitekey", key+".secret_file") && (w.PublicKey == "" || w.SecretFile == "") {
				d.fault(key, n, wrong("write sitekey: and secret_file: as Cloudflare gave them to you",
					"does not have both keys of a widget"))
			}
			found[mode] = w
		}})
	}
	return all
}

func widgetFields(c *Challenge) []field {
	return []field{
		one("sitekey", text(&c.PublicKey, cleanPublicKey)),
		{name: "secret_file", read: readFileName(&c.SecretFile)},
		one("verify_url", text(&c.VerifyURL, cleanVerifyURL)),
		list("hostnames", &c.Hostnames, cleanHost),
		one("fail_open", truth(&c.FailOpen)),
	}
}

func cleanPublicKey(s string) (string, *mistake) {
	if !challenge.IsPublicKey(s) {
		return "", wrong("write the public key of letters, digits and _.:- alone", "%s is no site key", quote(s))
	}
	return s, nil
}

// cleanVerifyURL parses the address to which a secret is sent.
func cleanVerifyURL(s string) (string, *mistake) {
	u, err := url.Parse(s)
	if err != nil || !identity.Safe(u) || u.User != nil || u.Fragment != "" {
		return "", wrong("write a URL such as https://proxy.example.com/siteverify",
			"%s is not the address of an endpoint by https", quote(s))
	}
	return s, nil
}

func passSharingFields(p *PassSharing) []field {
	return []field{
		one("networks", whole(&p.Networks, 1, 8)),
		one("action", word(&p.Action, "mark", "wait", "end")),
	}
}

func readIdentity(i *Identity) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		d.mapping(key, n, identityFields(i))
		switch {
		case !d.good(key, key+".header", key+".jwt", key+".jwt.jwks", key+".jwt.issuer", key+".jwt.audience",
			key+".codes", key+".codes.secret_file"):
		case i.Header != "" && i.JWT.JWKS != "", i.CodesFile != "" && (i.Header != "" || i.JWT.JWKS != ""):
			d.fault(key, n, wrong("keep one of them", "has more than one of header, jwt and codes"))
		case !i.Knows():
			d.fault(key, n, wrong("write identity: {jwt: {jwks: https://login.example.com/jwks.json, …}}, "+
				"header: x-member, or codes: {secret_file: codes.key}", "names no jwt, no header and no codes"))
		case i.Required && i.SignIn == "" && i.CodesFile == "" && d.good(key+".required", key+".sign_in"):
			d.fault(key, n, wrong("name the page where people sign in: sign_in: /login",
				"is required, and nobody can sign in"))
		default:
			i.crossGroups(d, key+".")
		}
	}
}

func identityFields(i *Identity) []field {
	return []field{
		one("header", text(&i.Header, cleanIdentityHeader)),
		one("group_header", text(&i.GroupHeader, cleanIdentityHeader)),
		{name: "groups", read: readGroups(&i.Groups)},
		{name: "jwt", read: func(d *decoder, key string, n *yaml.Node) {
			i.JWT.Claim = "sub"
			d.mapping(key, n, identityJWTFields(&i.JWT))
		}},
		group("codes", codesFields(i)),
		one("required", truth(&i.Required)),
		one("sign_in", text(&i.SignIn, cleanSignIn)),
	}
}

func identityJWTFields(j *JWT) []field {
	return append(jwtFields(j), one("group_claim", text(&j.GroupClaim, cleanClaim)))
}

func codesFields(i *Identity) []field {
	return []field{{name: "secret_file", read: readFileName(&i.CodesFile), example: "codes.key"}}
}

func jwtFields(j *JWT) []field {
	jwks := field{name: "jwks", example: "https://login.example.com/jwks.json"}
	jwks.read = func(d *decoder, key string, n *yaml.Node) {
		if d.scalar(key, n, text(&j.JWKS, cleanJWKS)) && !identity.IsURL(j.JWKS) {
			j.JWKS = d.beside(j.JWKS)
		}
	}
	return []field{
		jwks,
		required("issuer", "https://login.example.com", text(&j.Issuer, cleanClaim)),
		required("audience", "shop", text(&j.Audience, cleanClaim)),
		one("claim", text(&j.Claim, cleanClaim)),
		one("cookie", text(&j.Cookie, cleanCookieName)),
	}
}

// cleanJWKS parses a file name, or a URL from which nobody on the way can send other keys.
func cleanJWKS(s string) (string, *mistake) {
	if !identity.IsURL(s) {
		return cleanFileName(s)
	}
	u, err := url.Parse(s)
	if err != nil || !identity.Safe(u) || u.User != nil || u.Fragment != "" {
		return "", wrong("write a URL such as https://login.example.com/jwks.json, or the name of a file",
			"%s is not the address of a key set by https", quote(s))
	}
	return s, nil
}

func cleanClaim(s string) (string, *mistake) {
	if s == "" || len(s) > 255 {
		return "", wrong("write 1 to 255 characters", "%s has %d", quote(s), len(s))
	}
	return s, nil
}

func cleanCookieName(s string) (string, *mistake) {
	if !isToken(s) {
		return "", wrong("write the cookie's name alone, such as session", "%s is not the name of a cookie", quote(s))
	}
	return s, nil
}

// cleanIdentityHeader parses the name of a header that says who a visitor is.
func cleanIdentityHeader(s string) (string, *mistake) {
	name, m := cleanHeaderName(s)
	if m == nil && (name == "Cookie" || name == "Authorization" || wire.Owned(name)) {
		m = wrong("name a header that your proxy sets, such as x-member", "%s has another meaning", name)
	}
	return name, m
}

// cleanSignIn parses a path of the site, or a URL of https.
func cleanSignIn(s string) (string, *mistake) {
	bad := wrong("write a path such as /login, or /login?next={url}", "%s is neither a path nor a URL of https",
		quote(s))
	u, err := url.Parse(s)
	switch {
	case err != nil, len(s) > 2000,
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", bad
	case u.Scheme == "https" && u.Host != "":
		return s, nil
	case u.Scheme != "", u.Host != "", !strings.HasPrefix(s, "/"), strings.HasPrefix(s, "//"),
		strings.Contains(s, "\\"):
		return "", bad
	}
	path, _, _ := strings.Cut(s, "?")
	if _, m := cleanExcludedPath(path); m != nil {
		return "", m
	}
	return s, nil
}

// cleanBind parses header:NAME.
func cleanBind(s string) (string, *mistake) {
	name, ok := strings.CutPrefix(s, bindHeader)
	if !ok || name == "" {
		return "", wrong("write header:NAME, such as header:x-member", "%s names no header", quote(s))
	}
	name, m := cleanHeaderName(name)
	if m == nil && name == "Cookie" {
		m = wrong("name a header that stays the same, such as header:x-member", "Cookie changes")
	}
	return bindHeader + name, m
}

// homeOf returns the group that a misplaced key belongs to, or "".
func homeOf(name string) string {
	homes := []struct {
		place  string
		fields []field
	}{
		{"at the left margin", configFields(new(Config))},
		{"in a room, under rooms", roomFields(new(Room))},
		{"in a zone, under zones", zoneFields(new(Zone))},
		{"in a route, under additional_routes in a room", routeFields(new(route.Route))},
		{"under exclude in a room", excludeFields(new(Exclude), new(bool))},
		{"under cors in a room", corsFields(new(cors.Rules))},
		{"under join_limit in a room", joinLimitFields(new(JoinLimit))},
		{"under challenge in a room", challengeFields(new(Challenge))},
		{"under turnstile", turnstileFields(map[string]Challenge{})},
		{"under pass_sharing in a room", passSharingFields(new(PassSharing))},
		{"under identity in a room", identityFields(new(Identity))},
		{"under jwt in identity", identityJWTFields(new(JWT))},
		{"under codes in identity", codesFields(new(Identity))},
		{"in a group, under groups in identity", groupFields(new(Group))},
		{"in early in an event", earlyFields(new(Early))},
		{"under page in a room", pageFields(new(Page))},
		{"in a rule, under rules in a room", ruleFields(new(Rule))},
		{"under checkout in a room", checkoutFields(new(Checkout))},
		{"in an event, under events in a room", eventFields(new(Event), new(bool))},
		{"under tls", tlsFields(new(TLS))},
		{"under acme in tls", acmeFields(new(ACME))},
		{"under cluster", clusterFields(new(clusterKeys))},
		{"under tls in cluster", clusterTLSFields(new(clusterKeys))},
		{"in a data center, under datacenters in cluster", datacenterFields(new(datacenterKeys), "")},
		{"under engine", engineFields(new(Engine))},
		{"in a limit, under limits", limitFields(new(Limit))},
		{"in a queue, under queues", queueFields(new(Queue))},
		{"under target in a queue", targetFields(new(QueueTarget))},
		{"under traces", traceFields(new(Traces))},
		{"in a webhook, under webhooks", webhookFields(new(Webhook))},
		{"under total_active_users in a room", autoFields(new(Auto), new(int64), 1)},
		{"under origin_target in a room", targetOfOriginFields(new(Auto))},
		{"under origin_signal in a room", signalFields(new(Auto))},
		{"under plans", plansFields(new(Plans))},
		{"under holders in plans", holdersFields(new(Holders))},
	}
	for _, h := range homes {
		if slices.Contains(names(h.fields), name) {
			return h.place
		}
	}
	return ""
}

func readZones(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		for key, item := range d.items(key, n) {
			var z Zone
			d.mapping(key, item, zoneFields(&z))
			for _, twin := range []struct {
				key  string
				same func(Zone) bool
			}{
				{"name", func(x Zone) bool { return z.Name != "" && x.Name == z.Name }},
				{"id", func(x Zone) bool { return z.ID != "" && x.ID == z.ID }},
			} {
				if i := slices.IndexFunc(c.Zones, twin.same); i >= 0 {
					d.fault(key+"."+twin.key, item, wrong("give each zone a name and an id of its own",
						"is that of zones[%d] already", i))
				}
			}
			c.Zones = append(c.Zones, z)
		}
	}
}

func zoneFields(z *Zone) []field {
	return []field{
		required("name", "example.com", raw(&z.Name, cleanHost)),
		one("id", nameText(&z.ID)),
		one("origin", httpURL(&z.Origin)),
	}
}

func analyticsFields(a *Analytics) []field {
	const year = 366 * day
	return []field{
		one("enabled", truth(&a.Enabled)),
		one("keep", span(&a.Keep, day, year, false)),
		one("keep_hours", span(&a.KeepHours, day, 10*year, false)),
		one("max_bytes", whole(&a.MaxBytes, 10<<20, 1<<40)),
	}
}

func readCheckout(c *Checkout) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		d.mapping(key, n, checkoutFields(c))
		if len(c.GracePaths) > 0 && c.Grace == 0 {
			c.Grace = DefaultGrace
		}
		if c.Grace > 0 && len(c.GracePaths) == 0 && d.good(key+".grace_paths", key+".grace_paths[0]") {
			d.fault(key, n, wrong("name the paths of the checkout: grace_paths: [/checkout/]",
				"has a grace, and no grace_paths"))
		}
	}
}

func checkoutFields(c *Checkout) []field {
	return []field{
		one("pass", truth(&c.Pass)),
		list("grace_paths", &c.GracePaths, cleanExcludedPath, absolute()),
		one("grace", span(&c.Grace, time.Second, day, false)),
		one("warn", span(&c.Warn, time.Second, day, true)),
	}
}

const maxPolicy = 4000 // characters; proxies accept headers of at least 4 KB. Chosen

func readPage(p *Page) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		d.mapping(key, n, pageFields(p))
		if p.HTMLFile == "" && len(p.Translations) > 0 && d.good(key+".html_file") {
			d.fault(key, n, wrong("name the page in the room's language with html_file",
				"has translations of no page"))
		}
	}
}

func pageFields(p *Page) []field {
	return []field{
		{name: "html_file", read: readFileName(&p.HTMLFile)},
		{name: "translations", read: readTranslations(&p.Translations)},
		{name: "assets", read: readFileName(&p.Assets)},
		one("content_security_policy", text(&p.ContentSecurityPolicy, cleanPolicy)),
	}
}

func readTranslations(dst *map[string]string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		files := map[string]string{}
		var fields []field
		for _, tag := range pages.Languages() {
			fields = append(fields, field{name: tag, read: func(d *decoder, key string, n *yaml.Node) {
				var name string
				readFileName(&name)(d, key, n)
				files[tag] = name
			}})
		}
		d.mapping(key, n, fields)
		*dst = files
	}
}

// cleanLanguage normalizes a language tag to the form in which it is listed.
func cleanLanguage(s string) (string, *mistake) {
	all := pages.Languages()
	i := slices.IndexFunc(all, func(tag string) bool { return strings.EqualFold(tag, s) })
	if i < 0 {
		return "", wrong("write one of "+strings.Join(all, ", "), "%s is not among the languages", quote(s))
	}
	return all[i], nil
}

func cleanPolicy(s string) (string, *mistake) {
	if len(s) > maxPolicy || strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || unicode.IsControl(r)
	}) {
		return "", wrong("write it in one line of plain characters, of at most 4,000",
			"is no Content-Security-Policy")
	}
	if err := pages.CheckPolicy(s); err != nil {
		return "", wrong("take it out: headgate writes frame-ancestors as cookie_samesite says, and sandboxes "+
			"previews", "%s", err.Error())
	}
	return s, nil
}

func readEnvoy(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		e := &Envoy{}
		c.Envoy = e
		d.mapping(key, n, []field{
			required("listen", "127.0.0.1:8082", address(&e.Listen)),
			{name: "rules", read: readRuleFiles(&e.Rules), example: "[ratelimit.yaml]",
				without: func() bool { return e.Decide }},
			one("headers", truth(&e.Headers)),
			one("decide", truth(&e.Decide)),
		})
	}
}

func readDecide(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		c.Decide = &Decide{}
		d.mapping(key, n, []field{required("listen", "127.0.0.1:8083", address(&c.Decide.Listen))})
	}
}

// maxRuleFiles bounds the number of rule files. Chosen.
const maxRuleFiles = 1000

func readRuleFiles(dst *[]string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		before := d.Count()
		for key, item := range d.items(key, n) {
			var name string
			if d.scalar(key, item, text(&name, cleanRuleFile)) {
				*dst = append(*dst, d.beside(name))
			}
		}
		switch {
		case d.Count() > before:
		case len(*dst) == 0:
			d.fault(key, n, wrong("name at least one file of rules: [ratelimit.yaml]", "has no file"))
		case len(*dst) > maxRuleFiles:
			d.fault(key, n, wrong("put several domains' services apart", "has %d files, more than %d",
				len(*dst), maxRuleFiles))
		}
	}
}

func cleanRuleFile(s string) (string, *mistake) {
	if strings.TrimSpace(s) == "" {
		return "", wrong("write the path of a file, such as ratelimit.yaml", "is empty")
	}
	return s, nil
}
