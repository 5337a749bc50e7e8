package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/suggest"
)

// A kind is the type of a part of an expression.
type kind uint8

const (
	isBool kind = iota + 1
	isText
	isInt
	isAddress
	isArray // of text
	isMap   // from text to arrays of text
)

func (k kind) String() string {
	return [...]string{"", "true or false", "text", "a number", "an address", "an array", "a map"}[k]
}

// A field is a property of a request.
type field uint8

const (
	fieldHost field = iota + 1
	fieldMethod
	fieldVersion
	fieldURI
	fieldPath
	fieldExtension
	fieldQuery
	fieldFullURI
	fieldRawURI
	fieldRawPath
	fieldUserAgent
	fieldReferer
	fieldCookie
	fieldForwardedFor
	fieldCountry
	fieldScore
	fieldSource
	fieldTLS
	fieldCrawler
	fieldHeaders
	fieldHeaderNames
	fieldHeaderValues
	fieldArgs
	fieldArgNames
	fieldArgValues
	fieldCookies
)

type spec struct {
	field field
	kind  kind
}

// fields are the names that an expression may use.
var fields = map[string]spec{
	"http.host":                       {fieldHost, isText},
	"http.request.method":             {fieldMethod, isText},
	"http.request.version":            {fieldVersion, isText},
	"http.request.uri":                {fieldURI, isText},
	"http.request.uri.path":           {fieldPath, isText},
	"http.request.uri.path.extension": {fieldExtension, isText},
	"http.request.uri.query":          {fieldQuery, isText},
	"http.request.full_uri":           {fieldFullURI, isText},
	"raw.http.request.uri":            {fieldRawURI, isText},
	"raw.http.request.uri.path":       {fieldRawPath, isText},
	"http.user_agent":                 {fieldUserAgent, isText},
	"http.referer":                    {fieldReferer, isText},
	"http.cookie":                     {fieldCookie, isText},
	"http.x_forwarded_for":            {fieldForwardedFor, isText},
	"ip.src":                          {fieldSource, isAddress},
	"ip.src.country":                  {fieldCountry, isText},
	"cf.bot_management.score":         {fieldScore, isInt},
	"ssl":                             {fieldTLS, isBool},
	"headgate.verified_crawler":       {fieldCrawler, isBool},
	"http.request.headers":            {fieldHeaders, isMap},
	"http.request.headers.names":      {fieldHeaderNames, isArray},
	"http.request.headers.values":     {fieldHeaderValues, isArray},
	"http.request.uri.args":           {fieldArgs, isMap},
	"http.request.uri.args.names":     {fieldArgNames, isArray},
	"http.request.uri.args.values":    {fieldArgValues, isArray},
	"http.request.cookies":            {fieldCookies, isMap},
}

// foreign lists prefixes of Cloudflare's names that are not available here, and why.
var foreign = [][3]string{
	{"cf.client.bot", "only Cloudflare has its list of bots",
		"headgate.verified_crawler is true for search engines"},
	{"cf.verified_bot", "only Cloudflare has its list of bots",
		"headgate.verified_crawler is true for search engines"},
	{"cf.bot_management", "of these fields there is cf.bot_management.score",
		"headgate.verified_crawler is true for search engines"},
	{"cf.", "it is known in Cloudflare's network only", ""},
	{"ip.src.", "headgate does not know where an address is",
		"put the networks into a list: ip.src in $name"},
	{"ip.geoip.country", "Cloudflare has renamed it", "write ip.src.country"},
	{"ip.geoip.", "headgate does not know where an address is",
		"put the networks into a list: ip.src in $name"},
	{"http.response.", "rules are asked before there is a response", ""},
	{"raw.http.response.", "rules are asked before there is a response", ""},
	{"http.request.body", "headgate does not read bodies",
		"mark such requests by their path or a header"},
	{"http.request.timestamp.", "rules do not know the time",
		"rooms have opens_at"},
	{"http.request.jwt.", "headgate does not check such tokens", ""},
	{"http.request.headers.truncated", "a request with too long headers is refused before", ""},
	{"http.request.accepted_languages", "it is not taken apart here",
		`compare http.request.headers["accept-language"][0]`},
	{"raw.http.", "of raw fields there are raw.http.request.uri and raw.http.request.uri.path", ""},
	{"tcp.", "rules see requests, not packets", ""},
	{"udp.", "rules see requests, not packets", ""},
	{"icmp.", "rules see requests, not packets", ""},
	{"ip.", "of fields that begin with ip. there is ip.src", ""},
}

// A function is a function of the expression language.
type function uint8

const (
	callLower function = iota + 1
	callUpper
	callLen
	callStarts
	callEnds
	callAny
	callAll
)

var functions = map[string]function{
	"lower": callLower, "upper": callUpper, "len": callLen, "starts_with": callStarts,
	"ends_with": callEnds, "any": callAny, "all": callAll,
}

// otherFunctions are Cloudflare's functions that this package does not have.
const otherFunctions = ` bit_slice cidr cidr6 concat decode_base64 encode_base64 has_key has_value
	is_timed_hmac_valid_v0 join lookup_json_integer lookup_json_string regex_replace remove_bytes
	remove_query_args sha256 split substring to_string url_decode uuidv4 wildcard_replace `

// operators returns the words between a field and its operand, and what else people may write
// there.
func operators() []string {
	return []string{"eq", "ne", "lt", "le", "gt", "ge", "contains", "matches", "wildcard", "strict", "in"}
}

// unknownField explains why there is no such field.
func unknownField(name string) (problem, hint string) {
	for _, f := range foreign {
		if strings.HasPrefix(name, f[0]) {
			return name + " is not supported: " + f[1], f[2]
		}
	}
	problem = "unknown field " + name
	if meant := suggest.Nearest(name, slices.Sorted(maps.Keys(fields))); meant != "" {
		return problem, "did you mean " + meant + "?"
	}
	return problem, "docs/rules.md lists the fields"
}

// unknownFunction explains why there is no such function.
func unknownFunction(name string) (problem, hint string) {
	known := slices.Sorted(maps.Keys(functions))
	hint = "there are " + strings.Join(known, ", ")
	if slices.Contains(strings.Fields(otherFunctions), name) {
		return name + "() is not supported", hint
	}
	if meant := suggest.Nearest(name, known); meant != "" {
		hint = "did you mean " + meant + "()?"
	}
	return "unknown function " + name, hint
}

// operatorsOf returns the operators that are valid for a kind.
func operatorsOf(k kind) string {
	switch k {
	case isText:
		return "==, !=, <, <=, >, >=, contains, matches, wildcard, strict wildcard and in"
	case isInt:
		return "==, !=, <, <=, >, >= and in"
	default:
		return "==, != and in"
	}
}
