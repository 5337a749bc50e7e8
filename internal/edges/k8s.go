package edges

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/headgate/headgate/internal/hint"
)

// serviceName matches the host of an origin that is a Service: NAME, or NAME.NAMESPACE.svc.
var serviceName = regexp.MustCompile(`^([a-z]([-a-z0-9]*[a-z0-9])?)(\.([a-z0-9]([-a-z0-9]*[a-z0-9])?)\.svc(\.cluster\.local)?)?$`)

// service returns how a manifest refers to the Service of an origin, or "" if the origin is none.
func (o origin) service() string {
	found := serviceName.FindStringSubmatch(o.hostname)
	switch {
	case found == nil || o.scheme != "http":
		return ""
	case found[4] != "":
		return "name: " + found[1] + ", namespace: " + found[4]
	}
	return "name: " + found[1]
}

// refusal returns why manifests of a kind cannot refer to the origin, or nil.
func (o origin) refusal(kind string) error {
	switch service := o.service(); {
	case strings.HasPrefix(kind, "k8s") && service == "":
		return &hint.Error{Text: fmt.Sprintf("the origin of room %q is no Service that speaks http", o.name),
			Do: "write http://NAME:PORT, or http://NAME.NAMESPACE.svc:PORT"}
	case kind == "k8s-nginx" && strings.Contains(service, ", namespace: "):
		return &hint.Error{Text: fmt.Sprintf("the origin of room %q is in a namespace, and an Ingress reaches only its own", o.name),
			Do: "run headgate there, and write http://NAME:PORT"}
	}
	return nil
}

// ingressPath returns the regular expression of a room's path and what is below it, as ingress-nginx
// reads it: it begins with a slash, ignores case, and the longest comes first.
func (r room) ingressPath() string {
	if r.path == "/" {
		return r.path
	}
	flag := "(?i:"
	if !r.anyCase {
		flag = "(?-i:"
	}
	return "/" + flag + strings.ReplaceAll(regexp.QuoteMeta(r.path[1:]), "'", "''") + ")(/|$)"
}

// below returns the regular expression of a room's path and what is below it, as Envoy Gateway reads
// it. It puts longer expressions first, so that one that continues this one comes before it.
func (r room) below() string {
	if r.path == "/" {
		return ".*"
	}
	return r.caseless() + strings.ReplaceAll(regexp.QuoteMeta(r.path), "'", "''") + "(/.*)?"
}

// routeMatch returns how an HTTPRoute writes that a path is that of a room or below.
func (r room) routeMatch() string {
	if r.path == "/" {
		return "{type: PathPrefix, value: /}"
	}
	return "{type: RegularExpression, value: '" + r.below() + "'}"
}
