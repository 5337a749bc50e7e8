package pages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/route"
)

// These constants limit the files of a page, which are held in memory. Chosen: ten times what a
// page needs.
const (
	maxFiles = 200
	maxAsset = 16 << 20 // bytes of all files together
)

// assetTypes lists the file types that a page may have. HTML is not allowed: it would be a page of
// the site without a waiting room.
var assetTypes = map[string]string{
	".avif": "image/avif", ".gif": "image/gif", ".ico": "image/x-icon", ".jpeg": "image/jpeg",
	".jpg": "image/jpeg", ".png": "image/png", ".svg": "image/svg+xml", ".webp": "image/webp",
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".mjs": "text/javascript; charset=utf-8", ".json": "application/json",
	".txt": "text/plain; charset=utf-8", ".woff": "font/woff", ".woff2": "font/woff2",
	".otf": "font/otf", ".ttf": "font/ttf", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
	".webm": "video/webm",
}

// Assets are the files of a room's own page, as they were when read. headgate serves them from
// memory: they are available while the origin is down, and no request reads the disk.
type Assets struct{ files map[string]*asset }

type asset struct {
	body []byte
	kind string
	etag string
}

// ReadAssets reads the files of a folder and its subfolders. It skips names that begin with a dot.
// A link that leads out of the folder is an error.
func ReadAssets(folder string) (*Assets, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("folder of the page: %w", err)
	}
	defer root.Close()
	a := &Assets{files: map[string]*asset{}}
	left := maxAsset
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		hidden := name != "." && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil:
			return err
		case hidden && d.IsDir():
			return fs.SkipDir
		case hidden || d.IsDir():
			return nil
		}
		kind, err := assetType(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		body, err := readAtMost(root, name, left)
		if err != nil {
			return err
		}
		if left -= len(body); left < 0 || len(a.files) >= maxFiles {
			return fmt.Errorf("there are more than %d files, or more than %d MB", maxFiles, maxAsset>>20)
		}
		a.add(name, kind, body)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("files of the page in %s: %w", folder, err)
	}
	return a, nil
}

// CheckAsset returns an error if a page cannot have a file with this name.
func CheckAsset(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.ContainsFunc(part, func(r rune) bool {
			return r < ' ' || r == 0x7f || strings.ContainsRune(`\?#%`, r)
		}) {
			return fmt.Errorf("%q is not a file name", name)
		}
	}
	_, err := assetType(name)
	return err
}

// assetType returns the type of a file by its name.
func assetType(name string) (string, error) {
	if kind := assetTypes[strings.ToLower(path.Ext(name))]; kind != "" {
		return kind, nil
	}
	return "", fmt.Errorf("this file type is not allowed; the types are %s",
		strings.Join(slices.Sorted(maps.Keys(assetTypes)), " "))
}

// NewAssets returns Assets with these files by name. Each name must pass CheckAsset.
func NewAssets(files map[string][]byte) *Assets {
	a := &Assets{files: map[string]*asset{}}
	for name, body := range files {
		a.add(name, assetTypes[strings.ToLower(path.Ext(name))], body)
	}
	return a
}

func (a *Assets) add(name, kind string, body []byte) {
	sum := sha256.Sum256(body)
	a.files[name] = &asset{body, kind, `"` + hex.EncodeToString(sum[:12]) + `"`}
}

// readAtMost reads a regular file, at most one byte more than the limit.
func readAtMost(root *os.Root, name string, most int) ([]byte, error) {
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() { // reading a pipe would never end
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(most)+1))
}

// Equal reports whether two sets of files are the same; nil is an empty set.
func (a *Assets) Equal(x *Assets) bool {
	if a == nil || x == nil {
		return a == x
	}
	return maps.EqualFunc(a.files, x.files, func(a, x *asset) bool { return a.etag == x.etag })
}

// Before answers GET and HEAD requests for .headgate/assets in a folder of the room with the files.
// It passes all other requests to next.
func (a *Assets) Before(places *route.Set, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := places.Own(r)
		if ok {
			name, ok = strings.CutPrefix(name, "assets/")
		}
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		a.serve(w, r, name)
	})
}

func (a *Assets) serve(w http.ResponseWriter, r *http.Request, name string) {
	f := a.files[name]
	switch {
	case f == nil:
		http.Error(w, "this file of the page does not exist", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "public, max-age=300") // how long an old file may be shown. Chosen
	h.Set("ETag", f.etag)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
