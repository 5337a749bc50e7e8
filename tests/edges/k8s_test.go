//go:build edges

package edges

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/config"
)

// egctlPath is set by make edges-gateway.
var egctlPath = flag.String("egctl", "", "the egctl of Envoy Gateway that translates manifests; none: they are not tested")

// clusterIP is the address of every Service. The tests replace it by the loopback address.
const clusterIP = "10.96.0.1"

// around is what a cluster has besides the manifests of the docs.
const around = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg}
spec: {gatewayClassName: eg, listeners: [{name: http, protocol: HTTP, port: 8888}]}
`

var backend = regexp.MustCompile(`\[\{name: (\S+), port: (\d+)\}\]`)

// failed matches a condition of an object that Envoy Gateway does not accept.
var failed = regexp.MustCompile(`\{[^{}]*"status":"False"[^{}]*\}`)

// A value is one of JSON.
type value = map[string]any

// startEnvoyGateway starts Envoy with what Envoy Gateway makes of the manifests.
func startEnvoyGateway(t *testing.T, addr string, to places) {
	if to.cfg != nil {
		to.cfg = withServices(t, to.cfg)
	}
	runEnvoyGateway(t, addr, to, recipe(t, "k8s", addr, to))
}

func runEnvoyGateway(t *testing.T, addr string, to places, manifests string) {
	t.Helper()
	xds := translate(t, manifests, map[string]string{"8080": to.listen, "8082": to.envoy, "3000": to.origin})
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	xds.listener["address"] = value{"socketAddress": value{"address": host, "portValue": json.Number(port)}}
	text, err := json.Marshal(value{"staticResources": value{"listeners": []any{xds.listener}, "clusters": xds.clusters}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run(t, dir, addr, *envoyPath, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning",
		"-c", write(t, dir, "envoy.json", string(text)))
}

// withServices returns a configuration whose origins are Services with the same ports.
func withServices(t *testing.T, cfg *config.Config) *config.Config {
	t.Helper()
	other := *cfg
	other.Rooms = slices.Clone(cfg.Rooms)
	for i := range other.Rooms {
		port := other.Rooms[i].Origin.Port()
		other.Rooms[i].Origin = &url.URL{Scheme: "http", Host: "origin-" + port + ":" + port}
	}
	return &other
}

// xds is what Envoy gets of Envoy Gateway.
type xds struct {
	listener value
	clusters []any
	routes   value
}

// translate returns what Envoy Gateway makes of manifests. Endpoints are at the addresses of places, by
// their port, or at the same port of the loopback address.
func translate(t *testing.T, manifests string, places map[string]string) *xds {
	t.Helper()
	out, text := egctl(t, manifests)
	if out == nil {
		t.Fatal(text)
	}
	if found := failed.Find(out); found != nil {
		t.Fatalf("Envoy Gateway rejects a manifest: %s", found)
	}
	var all value
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	x := &xds{}
	endpoints := map[string]any{}
	for _, of := range all["xds"].(value) {
		for _, c := range of.(value)["configs"].([]any) {
			c := c.(value)
			for _, e := range list(c["dynamicEndpointConfigs"]) {
				e := e.(value)["endpointConfig"].(value)
				delete(e, "@type")
				move(t, e, places)
				endpoints[e["clusterName"].(string)] = e
			}
			for _, e := range list(c["dynamicActiveClusters"]) {
				cluster := e.(value)["cluster"].(value)
				service := cluster["edsClusterConfig"].(value)["serviceName"].(string)
				delete(cluster, "edsClusterConfig")
				cluster["type"], cluster["loadAssignment"] = "STATIC", endpoints[service]
				delete(cluster, "@type")
				x.clusters = append(x.clusters, cluster)
			}
			for _, e := range list(c["dynamicListeners"]) {
				l := e.(value)["activeState"].(value)["listener"].(value)
				delete(l, "@type")
				if l["defaultFilterChain"] != nil { // the other one is for the kubelet
					x.listener = l
				}
			}
			for _, e := range list(c["dynamicRouteConfigs"]) {
				x.routes = e.(value)["routeConfig"].(value)
				delete(x.routes, "@type")
			}
		}
	}
	filter := x.listener["defaultFilterChain"].(value)["filters"].([]any)[0].(value)["typedConfig"].(value)
	delete(filter, "rds")
	filter["routeConfig"] = x.routes
	delete(filter, "accessLog")
	delete(x.listener, "accessLog")
	return x
}

// egctl returns what egctl makes of manifests, or nil and why it does not accept them: it compares them with
// the definitions of their kinds, and knows no Service and no NetworkPolicy.
func egctl(t *testing.T, manifests string) (out []byte, text string) {
	t.Helper()
	manifests = strings.Replace(manifests, "selector: {app: headgate}\n", "clusterIP: "+clusterIP+"\n", 1)
	services := map[string]bool{"headgate": true}
	for _, found := range backend.FindAllStringSubmatch(manifests, -1) {
		if !services[found[1]] {
			services[found[1]] = true
			manifests += "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + found[1] + "}\nspec: {clusterIP: " +
				clusterIP + ", ports: [{name: http, port: " + found[2] + "}]}\n"
		}
	}
	cmd := exec.Command(*egctlPath, "x", "translate", "--from", "gateway-api", "--to", "xds,gateway-api", "-o", "json",
		"-f", write(t, t.TempDir(), "all.yaml", manifests+around))
	out, err := cmd.Output()
	if failure, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, string(failure.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return out, ""
}

// TestExternalAuthIsValid: the API accepts the filter of the docs. Envoy Gateway does not know it.
func TestExternalAuthIsValid(t *testing.T) {
	if *egctlPath == "" {
		return
	}
	var kept []string
	filter := recipe(t, "externalauth", "127.0.0.1:1", places{})
	for o := range strings.SplitSeq(recipe(t, "k8s", "127.0.0.1:1", places{}), "---\n") {
		if strings.Contains(o, "kind: HTTPRoute\nmetadata: {name: shop.example}") {
			o = strings.ReplaceAll(o, "      filters:\n", "      filters:\n"+filter)
		}
		if !strings.Contains(o, "kind: SecurityPolicy\n") {
			kept = append(kept, o)
		}
	}
	valid := strings.Join(kept, "---\n")
	if out, text := egctl(t, valid); !strings.Contains(string(out), "unsupported filter type ExternalAuth") {
		t.Errorf("%s%s", text, out)
	}
	for _, part := range []string{"grpc: {}, ", "protocol: GRPC, "} {
		if out, _ := egctl(t, strings.Replace(valid, part, "", 1)); out != nil {
			t.Errorf("valid without %s", part)
		}
	}
}

// TestNoRouteToQuestions: no request of a visitor is forwarded to the port where headgate answers
// questions, and headgate is asked about each request that is forwarded to an origin.
func TestNoRouteToQuestions(t *testing.T) {
	if *egctlPath == "" {
		return
	}
	cfg, err := config.Parse("test.yaml", []byte(`listen: :8080
envoy: {listen: ":8082", decide: true}
trusted_proxies: [10.244.0.0/16]
rooms:
  - {name: shop, host: shop.example, origin: "http://shop:3000", total_active_users: 9, new_users_per_minute: 9}
  - {name: tickets, host: shop.example, path: /tickets.of-the-year, origin: "http://tickets:3001", total_active_users: 9, new_users_per_minute: 9}
  - {name: rest, path: /a, origin: "http://shop:3000", total_active_users: 9, new_users_per_minute: 9}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]places{"docs": {}, "several rooms": {cfg: cfg}} {
		x := translate(t, recipe(t, "k8s", "127.0.0.1:1", to), nil)
		at := map[string]string{} // cluster: ports
		for _, c := range x.clusters {
			c := c.(value)
			text, err := json.Marshal(c["loadAssignment"])
			if err != nil {
				t.Fatal(err)
			}
			at[c["name"].(string)] = strings.Join(portValue.FindAllString(string(text), -1), " ")
		}
		asked, waiting := 0, 0
		for _, host := range list(x.routes["virtualHosts"]) {
			for _, r := range list(host.(value)["routes"]) {
				r := r.(value)
				filters, _ := json.Marshal(r["typedPerFilterConfig"])
				switch port := at[r["route"].(value)["cluster"].(string)]; port {
				case `"portValue":8080`:
					waiting++
				case `"portValue":3000`, `"portValue":3001`:
					asked++
					if !strings.Contains(string(filters), "ext_authz") || strings.Contains(string(filters), "disabled") {
						t.Errorf("%s: headgate is not asked: %v", name, r)
					}
				default:
					t.Errorf("%s: a route to %q: %v", name, port, r)
				}
			}
		}
		if asked == 0 || waiting != 2*asked {
			t.Errorf("%s: %d routes to origins, %d to headgate", name, asked, waiting)
		}
	}
}

var portValue = regexp.MustCompile(`"portValue":\d+`)

func list(v any) []any {
	all, _ := v.([]any)
	return all
}

// move changes the addresses of endpoints.
func move(t *testing.T, v any, places map[string]string) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			move(t, e, places)
		}
	case value:
		if s, ok := v["socketAddress"].(value); ok {
			if s["address"] != clusterIP {
				t.Fatalf("an endpoint at %v", s)
			}
			s["address"] = "127.0.0.1"
			if to := places[strconv.Itoa(int(s["portValue"].(float64)))]; to != "" {
				host, port, err := net.SplitHostPort(to)
				if err != nil {
					t.Fatal(err)
				}
				s["address"], s["portValue"] = host, json.Number(port)
			}
			return
		}
		for _, e := range v {
			move(t, e, places)
		}
	}
}

// startTraefikInKubernetes starts Traefik with the manifests, as a file: the rules, the order and the
// middlewares are theirs.
func startTraefikInKubernetes(t *testing.T, addr string, to places) {
	if to.cfg != nil {
		to.cfg = withServices(t, to.cfg)
	}
	places := map[string]string{"8080": to.listen, "3000": to.origin}
	routers, middlewares, services := value{}, value{}, value{}
	for d := yaml.NewDecoder(strings.NewReader(recipe(t, "k8s-traefik", addr, to))); ; {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     value
		}
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if o.Kind == "Middleware" {
			middlewares[o.Metadata.Name] = o.Spec
			if ask, ok := o.Spec["forwardAuth"].(value); ok {
				u, err := url.Parse(ask["address"].(string))
				if err != nil || u.Hostname() != "headgate.default.svc.cluster.local" {
					t.Fatalf("headgate is asked at %s: %v", ask["address"], err)
				}
				u.Host = to.decide
				ask["address"] = u.String()
			}
		}
		if o.Kind != "IngressRoute" {
			continue
		}
		for i, r := range list(o.Spec["routes"]) {
			r, name := r.(value), strconv.Itoa(i)
			var names []string
			for _, m := range list(r["middlewares"]) {
				names = append(names, m.(value)["name"].(string))
			}
			port := fmt.Sprint(list(r["services"])[0].(value)["port"])
			services[name] = value{"loadBalancer": value{"servers": []any{value{
				"url": "http://" + cmp.Or(places[port], "127.0.0.1:"+port)}}}}
			routers[name] = value{"rule": r["match"], "priority": r["priority"], "middlewares": names, "service": name}
		}
	}
	text, err := yaml.Marshal(value{"http": value{"routers": routers, "middlewares": middlewares, "services": services}})
	if err != nil {
		t.Fatal(err)
	}
	runTraefik(t, addr, string(text))
}
