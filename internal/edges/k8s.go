package edges

import (
	"regexp"
	"strings"
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

func inKubernetes(kind string) bool { return strings.HasPrefix(kind, "k8s") }

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
