package headgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// forward passes requests on to an origin, without what belongs to the room: a program that reads a
// visitor's cookie can act as that visitor.
func forward(origin *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(origin)
		p.Out.Host = p.In.Host
		p.SetXForwarded() // the client's own forwarding headers are already removed
		p.Out.Header.Del(headgate.PollHeader)
		p.Out.Header.Del("Headgate-Solution")
		if !strings.EqualFold(p.In.Header.Get("Upgrade"), "websocket") { // a tunnel past the room
			p.Out.Header.Del("Upgrade")
			p.Out.Header.Del("Connection")
			p.Out.Header.Del("Http2-Settings")
		}
		p.Out.Header.Del("Cookie")
		for part := range strings.SplitSeq(strings.Join(p.In.Header["Cookie"], ";"), ";") {
			part = strings.TrimSpace(part)
			if ours := strings.TrimPrefix(part, "__Host-"); part == "" ||
				strings.HasPrefix(ours, "__cfwaitingroom") {
				continue
			}
			p.Out.Header.Add("Cookie", part)
		}
		if lines := p.Out.Header["Cookie"]; len(lines) > 1 { // HTTP/1.1 has one line
			p.Out.Header.Set("Cookie", strings.Join(lines, "; "))
		}
	}}
}

// guarded returns a server with the limits that the command sets and a room does not.
func guarded(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10}
}

// A room in front of a site on another machine, with net/http alone.
func ExampleRoom_Handler_reverseProxy() {
	site := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Printf("the site reads %q\n", r.Header["Cookie"])
	}))
	defer site.Close()
	origin, err := url.Parse(site.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	room, err := headgate.OpenRoom(ctx, headgate.RoomConfig{
		Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 60,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go room.Run(ctx)
	server := guarded(room.Handler(forward(origin)))

	visit := httptest.NewRequest("GET", "/", nil)
	visit.Header.Set("Accept", "text/html")
	for range 2 { // enter, and once more with the pass
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, visit)
		visit.Header.Set("Cookie", "basket=7")
		for _, c := range w.Result().Cookies() {
			visit.AddCookie(c)
		}
	}
	// Output:
	// the site reads []
	// the site reads ["basket=7"]
}
