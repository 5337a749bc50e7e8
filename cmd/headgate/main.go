// Command headgate stands in front of what can be overrun and lets in only
// what it can take.
//
// # The terminal
//
// What was asked for goes to standard output, everything else to standard
// error. A mistake is a line that begins with "headgate: " and a line that
// begins with "hint: " and says what to do; neither begins with a capital nor
// ends with a period. The exit code is 0 when all went well, 1 when it did
// not, 2 when the arguments or the configuration are wrong.
//
// Each command has a file of its own and a line in commands.go. The flags of
// run belong to package config. Nothing here is for import, and nothing here
// decides anything about a visitor.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	heard, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := context.WithCancel(context.Background())
	context.AfterFunc(heard, func() { stop(); end() }) // a second signal ends what this one does not
	code := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
