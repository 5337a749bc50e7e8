//go:build ignore

// Taken listens at the ports of its arguments until it is killed: a port that is taken already
// is as good.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	for _, port := range os.Args[1:] {
		for _, host := range []string{"", "127.0.0.1"} {
			if _, err := net.Listen("tcp", host+":"+port); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	select {}
}
