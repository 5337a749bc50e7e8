package pages

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/route"
)

func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAssets(t *testing.T) {
	dir := folderOf(t, map[string]string{
		"logo.SVG": "<svg/>", "css/page.css": "p{}", ".git/config": "secret", ".env.txt": "secret",
	})
	a, err := ReadAssets(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil { // it was read once
		t.Fatal(err)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(299) })
	h := a.Before(route.New([]route.Route{{Path: "/shop"}}, false), next)
	ask := func(method, path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/", nil)
		r.URL.Path = path
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const at = "/shop/.headgate/assets/"
	w := ask("GET", at+"logo.SVG")
	if w.Code != 200 || w.Body.String() != "<svg/>" || w.Header().Get("Content-Type") != "image/svg+xml" ||
		w.Header().Get("Cache-Control") != "public, max-age=300" ||
		!strings.Contains(w.Header().Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("logo: %d %s %v", w.Code, w.Body, w.Header())
	}
	if again := ask("GET", at+"logo.SVG", "If-None-Match", w.Header().Get("ETag")); again.Code != 304 {
		t.Errorf("again: %d, want 304", again.Code)
	}
	if w := ask("HEAD", at+"css/page.css"); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d %s", w.Code, w.Body)
	}
	for path, code := range map[string]int{
		at + "no.png": 404, at: 404, at + ".git/config": 404, at + ".env.txt": 404, at + "css": 404,
		at + "../../../etc/passwd": 299, at + "css/../logo.SVG": 299, at + "/etc/passwd": 299, // the room's
		"/shop/": 299, "/shop/.headgate/assets": 299, "/other/.headgate/assets/logo.SVG": 299,
	} {
		if w := ask("GET", path); w.Code != code {
			t.Errorf("GET %s: %d, want %d", path, w.Code, code)
		}
	}
	if w := ask("POST", at+"logo.SVG"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

// TestAssetsStayInTheirFolder: what a page may not have is told when it is read.
func TestAssetsStayInTheirFolder(t *testing.T) {
	outside := folderOf(t, map[string]string{"secret.txt": "secret"})
	link := folderOf(t, map[string]string{"a.txt": "a"})
	if err := os.Symlink(filepath.Join(outside, "secret.txt"), filepath.Join(link, "b.txt")); err != nil {
		t.Fatal(err)
	}
	half := strings.Repeat("x", 9<<20)
	many := map[string]string{}
	for i := range maxFiles + 1 {
		many[strings.Repeat("x", i+1)+".txt"] = ""
	}
	for dir, want := range map[string]string{
		link: "b.txt",
		folderOf(t, map[string]string{"index.html": "<script>"}): "index.html: this file type is not allowed",
		folderOf(t, map[string]string{"page": ""}):               "page: this file type is not allowed",
		folderOf(t, many): "more than 200 files",
		folderOf(t, map[string]string{"a.txt": half, "b.txt": half}): "more than 16 MB",
		filepath.Join(link, "none"):                                  "no such file",
		filepath.Join(link, "a.txt"):                                 "not a directory",
	} {
		if _, err := ReadAssets(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}
