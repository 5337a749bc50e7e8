//go:build bench

package peers

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
)

// A whole is a headgate as the command runs it, with a room that lets all in and one at /full that
// is full.
type whole struct{ addr string }

// openWhole opens one that keeps analytics, or none.
func openWhole(ctx context.Context, dir, origin string, keeps bool) (*whole, error) {
	name := fmt.Sprintf("keeps-%v", keeps)
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: %s\n"+
		"analytics: {enabled: %v}\nrooms:\n"+
		"  - {name: open, origin: %q, total_active_users: 1000, new_users_per_minute: 1000, session_duration: 1h}\n"+
		"  - {name: full, path: /full, origin: %q, total_active_users: 1, new_users_per_minute: 1, "+
		"session_duration: 1h, hold: 1h}\n", filepath.Join(dir, name), keeps, origin, origin)
	cfg, err := config.Parse(name, []byte(text))
	if err != nil {
		return nil, err
	}
	s, err := server.Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	go s.Run(ctx)
	w := &whole{s.Addr().String()}
	for ready := false; !ready; {
		res, err := http.Get("http://" + s.AdminAddr().String() + "/readyz")
		if err != nil {
			return nil, err
		}
		ready = res.StatusCode == http.StatusOK
		res.Body.Close()
		<-time.After(10 * time.Millisecond)
	}
	return w, nil
}

// cookie is that of a visitor who comes to a path.
func (w *whole) cookie(path string) (string, error) {
	r, err := http.NewRequest("GET", "http://"+w.addr+path, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept", "text/html")
	r.Host = "x"
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return "", err
	}
	for _, c := range res.Cookies() {
		return c.Name + "=" + c.Value, nil
	}
	return "", fmt.Errorf("no cookie from %s: %s", path, res.Status)
}

// serveWholes puts a headgate with analytics and one without, side by side.
func serveWholes(ctx context.Context, dir, origin string, print func(name, addr, path, heads string)) error {
	for _, keeps := range []bool{true, false} {
		w, err := openWhole(ctx, dir, origin, keeps)
		if err != nil {
			return err
		}
		name := map[bool]string{true: "kept", false: "unkept"}[keeps]
		var passes []string
		for range conns {
			c, err := w.cookie("/")
			if err != nil {
				return err
			}
			passes = append(passes, "Accept: text/html|Sec-Fetch-Mode: navigate|Cookie: "+c+"|")
		}
		print("pass-"+name, w.addr, "/", strings.Join(passes, "~"))
		if _, err := w.cookie("/full"); err != nil { // takes the only slot
			return err
		}
		ticket, err := w.cookie("/full")
		if err != nil {
			return err
		}
		print("json-"+name, w.addr, "/full", "Accept: application/json|Headgate-Poll: 1|Cookie: "+ticket+"|")
	}
	return nil
}
