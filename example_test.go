package headgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate"
)

// A room of one in front of a handler: the second visitor waits.
func ExampleRoom_Handler() {
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
