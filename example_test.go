package headgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
)

// A room with one slot in front of a handler: the second visitor waits.
func Example() {
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
	shop := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "welcome")
	})
	gate := room.Handler(shop)

	for range 2 {
		visit := httptest.NewRequest("GET", "/", nil)
		visit.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		gate.ServeHTTP(w, visit)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get(headgate.StateHeader))
	}
	// Output:
	// 200 ""
	// 503 "waiting"
}

// A room that outlives its process. The caller must store the sealing keys.
func ExampleOpenEngine() {
	dir, err := os.MkdirTemp("", "headgate-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	keys := headgate.SealingKeys{Current: 1, Keys: map[byte][32]byte{1: {'s', 'e', 'c', 'r', 'e', 't'}}}
	cookie := ""
	for range 2 { // two processes, one after the other
		cookie = visitOnce(dir, keys, cookie)
	}
	// Output:
	// let in as a newcomer
	// let in with the pass of before
}

func visitOnce(dir string, keys headgate.SealingKeys, cookie string) string {
	ctx, stop := context.WithCancel(context.Background())
	engine, err := embedded.Open(ctx, embedded.Config{Dir: filepath.Join(dir, "engine")})
	if err != nil {
		fmt.Println(err)
	}
	defer engine.Close()
	records, err := headgate.OpenEngine(ctx, headgate.EngineConfig{
		NATS: engine.Conn(), Copies: filepath.Join(dir, "records"), OnWriteFailure: engine.Heal, Keys: keys,
	})
	if err != nil {
		fmt.Println(err)
	}
	defer records.Close()
	room, err := headgate.OpenRoom(ctx, headgate.RoomConfig{
		Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 1, Engine: records,
	})
	if err != nil {
		fmt.Println(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- room.Run(ctx) }()
	go func() { ended <- engine.Run(ctx) }() // restarts an engine that cannot write
	defer func() { stop(); <-ended; <-ended }()

	visit := httptest.NewRequest("GET", "/", nil)
	visit.Header.Set("Accept", "text/html")
	visit.Header.Set("Cookie", cookie)
	w := httptest.NewRecorder()
	room.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if cookie == "" {
			fmt.Println("let in as a newcomer")
		} else {
			fmt.Println("let in with the pass of before")
		}
	})).ServeHTTP(w, visit)
	if c := w.Result().Cookies(); len(c) > 0 {
		cookie = c[0].Name + "=" + c[0].Value
	}
	return cookie
}
