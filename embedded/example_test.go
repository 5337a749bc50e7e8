package embedded_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
)

// An engine in this process, for rooms that survive a restart.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "headgate-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server, err := embedded.Open(ctx, embedded.Config{Dir: filepath.Join(dir, "engine")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }() // restarts an engine that cannot write
	defer func() { stop(); <-ended }()

	engine, err := headgate.OpenEngine(ctx, headgate.EngineConfig{
		NATS: server.Conn(), Copies: filepath.Join(dir, "copies"),
		Exclusive: true, OnWriteFailure: server.Heal,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	room, err := headgate.OpenRoom(ctx, headgate.RoomConfig{
		Name: "shop", TotalActiveUsers: 200, NewUsersPerMinute: 200, Engine: engine,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(room.Status().TotalActiveUsers, "visitors at once")
	// Output: 200 visitors at once
}
