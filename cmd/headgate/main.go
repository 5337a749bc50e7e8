// Command headgate stands in front of anything that can be overloaded. It admits only as much as
// it can handle.
//
// # The terminal
//
// Results go to standard output, everything else to standard error. An error is a line that begins
// with "headgate: ", and a line that begins with "hint: " and contains what to do. Neither begins
// with a capital nor ends with a period. The exit code is 0 on success, 1 on failure, and 2 when
// the arguments or the configuration are wrong.
//
// # The files
//
// main calls commands.go, which has a line for each command and finds its file. Commands that ask a
// running process use operator.go; all use print.go for results, errors and exit codes. The flags of
// run belong to package config. Nothing here is for import, and nothing here makes decisions about
// visitors.
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
	context.AfterFunc(heard, func() { stop(); end() }) // a second signal kills the process
	code := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
