//go:build edges

package edges

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/tests/yardstick"
)

// ingressPath is set by make edges-ingress.
var ingressPath = flag.String("ingress", "", "the controller of ingress-nginx, beside its nginx.tmpl; none: it is not tested")

// startIngressNginx starts nginx with what the controller of ingress-nginx makes of the manifests.
func startIngressNginx(t *testing.T, addr string, to places) {
	if to.cfg != nil {
		to.cfg = withServices(t, to.cfg)
	}
	runIngressNginx(t, addr, to, recipe(t, "k8s-nginx", addr, to))
}

var (
	service   = regexp.MustCompile(`set \$proxy_upstream_name "(default-\S+-(\d+))";`)
	headgates = regexp.MustCompile(`headgate\.default\.svc\.cluster\.local:(\d+)`)
	listens   = regexp.MustCompile(`(?m)^\s*listen (\d+) (?:default_server )?(?:reuseport backlog=\d+)? ?;`)

	// onlyThere matches lines that Debian's nginx does not know, or that name places of the image.
	onlyThere = regexp.MustCompile(`(?m)^\s*(lua_|http2 on|more_clear_headers|access_log /|error_log|ssl_certificate|listen \[::\]|listen .* ssl).*$`)
)

// runIngressNginx runs what the controller writes in Debian's nginx, which has no Lua: nginx's own load
// balancer takes the place of the one in Lua.
func runIngressNginx(t *testing.T, addr string, to places, manifests string) {
	t.Helper()
	text := rendered(t, portOf(t, addr), manifests)
	text, _, _ = strings.Cut(text, "# default server, used for NGINX healthcheck")
	at := map[string]string{"8080": to.listen, "8083": to.decide, "3000": to.origin}
	place := func(port string) string {
		if other := at[port]; other != "" {
			return other
		}
		return "127.0.0.1:" + port
	}
	upstreams := map[string]string{}
	for _, found := range service.FindAllStringSubmatch(text, -1) {
		upstreams[found[1]] = place(found[2])
	}
	for _, found := range listens.FindAllStringSubmatch(text, -1) {
		if found[1] != portOf(t, addr) {
			upstreams["upstream-default-backend"] = place(found[1])
		}
	}
	text = onlyThere.ReplaceAllString(withoutLua(text), "")
	text = listens.ReplaceAllString(text, "listen 127.0.0.1:$1;")
	text = strings.ReplaceAll(text, "proxy_pass http://upstream_balancer;", "proxy_pass http://$proxy_upstream_name;")
	text = headgates.ReplaceAllStringFunc(text, func(s string) string { return place(portOf(t, s)) })
	dir := t.TempDir()
	text = strings.ReplaceAll(text, "/tmp/nginx/", dir+"/") + "}\n"
	var head strings.Builder
	head.WriteString("http {\nerror_log stderr;\naccess_log off;\n")
	for name, addr := range upstreams {
		head.WriteString("upstream " + name + " { server " + addr + "; keepalive 64; }\n")
	}
	text = "user root;\n" + strings.Replace(text, "http {\n", head.String(), 1)
	run(t, dir, addr, "nginx", "-e", "stderr", "-c", write(t, dir, "nginx.conf", text))
}

// withoutLua removes the blocks of Lua.
func withoutLua(text string) string {
	for {
		begin := strings.Index(text, "_by_lua_block {")
		if begin < 0 {
			return text
		}
		end, depth := begin+len("_by_lua_block "), 0
		for more := true; more; end++ {
			switch text[end] {
			case '{':
				depth++
			case '}':
				depth--
				more = depth > 0
			}
		}
		text = text[:strings.LastIndexByte(text[:begin], '\n')+1] + text[end:]
	}
}

// rendered returns the nginx.conf that the controller of ingress-nginx writes for manifests.
func rendered(t *testing.T, port, manifests string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"etc/nginx/template", "etc/ingress-controller/telemetry", "nginx"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	template, err := os.ReadFile(filepath.Join(filepath.Dir(*ingressPath), "nginx.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "etc/nginx/template/nginx.tmpl", string(template))
	// In place of nginx, it keeps what the controller would have nginx check, and says that it is wrong.
	nginx := write(t, dir, "nginx.sh", "#!/bin/sh\n[ \"$3\" = -t ] && cp \"$2\" new && mv new nginx.conf\nexit 1\n")
	if err := os.Chmod(nginx, 0o700); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(apiServer(t, manifests))
	defer api.Close()
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	args := []string{"--apiserver-host=" + api.URL, "--configmap=ingress-nginx/ingress-nginx-controller", "--http-port=" + port,
		"--profiling=false", "--update-status=false", "--disable-leader-election", "--enable-metrics=false"}
	for _, name := range []string{"https", "status", "stream", "default-server", "healthz"} {
		args = append(args, "--"+name+"-port="+portOf(t, loopback.Free(t)))
	}
	cmd := exec.Command(*ingressPath, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "NGINX_BINARY="+nginx, "POD_NAME=controller", "POD_NAMESPACE=ingress-nginx")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		api.CloseClientConnections() // the watches
		cmd.Process.Kill()
		cmd.Wait()
		if text, err := os.ReadFile(output.Name()); t.Failed() && err == nil {
			t.Logf("%s", text)
		}
	}()
	var text []byte
	yardstick.Await(t, "the controller writes its configuration", func() bool {
		text, err = os.ReadFile(filepath.Join(dir, "nginx.conf"))
		return err == nil
	})
	return string(text)
}

// apiServer has the objects of manifests, and what a cluster with ingress-nginx has besides. It answers
// the questions of the controller; nothing ever changes.
func apiServer(t *testing.T, manifests string) http.Handler {
	t.Helper()
	objects := map[string][]any{} // by the name of the list
	d := yaml.NewDecoder(strings.NewReader(manifests + `
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: nginx}
spec: {controller: k8s.io/ingress-nginx}
---
{apiVersion: v1, kind: Pod, metadata: {name: controller, namespace: ingress-nginx}}
`))
	for {
		var o value
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		about, kind := o["metadata"].(value), o["kind"].(string)
		about["uid"], about["resourceVersion"] = kind+"/"+about["name"].(string), "1"
		if about["namespace"] == nil && kind != "IngressClass" {
			about["namespace"] = "default"
		}
		of := strings.ToLower(kind) + "s"
		if strings.HasSuffix(kind, "ss") {
			of = strings.ToLower(kind) + "es"
		}
		objects[of] = append(objects[of], o)
	}
	lists := map[string]string{"configmaps": "ConfigMap", "services": "Service", "secrets": "Secret", "ingresses": "Ingress",
		"ingressclasses": "IngressClass", "endpointslices": "EndpointSlice"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		parent, last := path.Split(r.URL.Path)
		var got any
		switch kind := lists[last]; {
		case r.URL.Query().Get("watch") != "":
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		case r.URL.Path == "/version":
			got = value{"major": "1", "minor": "30", "gitVersion": "v1.30.0"}
		case kind != "":
			version := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(parent, "/apis"), "/api"), "/")
			got = value{"kind": kind + "List", "apiVersion": version, "metadata": value{"resourceVersion": "1"},
				"items": append([]any{}, objects[last]...)}
		default:
			for _, o := range objects[path.Base(parent)] {
				if o.(value)["metadata"].(value)["name"] == last {
					got = o
				}
			}
		}
		if got == nil {
			w.WriteHeader(http.StatusNotFound)
			got = value{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
		}
		json.NewEncoder(w).Encode(got)
	})
}
