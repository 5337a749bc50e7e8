package house

// Exceptions are maps from what is excused to the reason. They are functions,
// for this package holds no state either.

// waiters says of each file that starts goroutines who waits for them.
func waiters() map[string]string {
	return map[string]string{
		"embedded/embedded.go":           "start waits for the engine's start, or shuts it down",
		"internal/counter/remote.go":     "answerAsks waits for all that it answers",
		"internal/counter/members.go":    "AskOthers waits for all that it asks",
		"internal/counter/finishmove.go": "allAgree waits for all that it asks",
		"internal/counter/sites.go":      "ConfirmHome waits for all that it asks",
		"internal/counter/seat.go":       "Run waits for the senders, serve for the host's Run",
		"internal/server/engine.go":      "run waits for the engine's Run and the membership's",
		"queue/queue.go":                 "Run waits for the writer of what is put",
		"queue/host.go":                  "run waits for all parts and deliveries before it returns",
		"queue/dispatch.go":              "the host's run waits for the deliveries",
		"internal/store/serve.go":        "page waits for all that it reads",
		"internal/store/bus.go":          "the stop of Serve waits for the answers under way",
		"cmd/headgate/serve.go":          "serve waits for the reloads on SIGHUP before it returns",
		"internal/crowd/command.go":      "runWatched waits for the line of progress before it returns",
		"internal/doctor/door.go":        "knockAll waits for all that it has sent",
		"internal/demo/demo.go":          "run waits for all parts before it returns",
		"internal/demo/flock.go":         "run waits for all its visitors before it returns",
		"internal/demo/front.go":         "close waits for the server's end",
		"internal/demo/gate.go":          "end waits for the process before it returns",
		"internal/demo/shop.go":          "close waits for the server's end",
		"internal/demo/wire.go":          "close waits for all that it carries",
		"internal/demo/worlddemo.go":     "people waits for the crowds of all cities",
		"internal/crowd/crowd.go":        "run waits for all its visitors before it returns",
		"internal/server/gate.go":        "Server.Run waits for all tasks before it returns",
		"internal/server/share.go":       "share waits for all that ask other data centres",
		"internal/server/server.go":      "Run waits for all parts before it returns",
		"internal/server/tls.go":         "Run and drainAll wait for both listeners before they return",
		"engine.go":                      "Run waits for the membership and the data centres",
		"internal/counter/counter.go":    "Run waits for what it borrows and shows",
		"internal/counter/picture.go":    "show waits for what it shows to each",
		"internal/quota/block.go":        "writeBlocks waits for all that it writes",
		"internal/quota/carry.go":        "Run waits for all that carry",
		"internal/quota/host.go":         "Run waits for the lease and for all links",
		"internal/quota/kept.go":         "keepCopies waits for its writer, Run for what erases",
		"internal/quota/uses.go":         "uses waits for all that it asks",
		"internal/rules/crawler.go":      "Run waits for all that look up",
		"internal/unary/serve.go":        "Serve waits for all connections",
		"internal/unary/call.go":         "serve waits for the connection's workers",
		"internal/quota/node.go":         "Run waits for the desk, the way and the host",
		"room.go":                        "Run waits for the counter, the worker and the opening",
		"examples/criteo/client.go":      "run waits for all calls before it returns",
		"examples/criteo/origin.go":      "close waits for the server's end",
		"examples/criteo/watch.go":       "watch waits for the client before it returns",
		"tests/crowd/origin.go":          "Close waits for the server's end",
		"tests/crowd/process.go":         "Stop waits for the process",
		"tests/world/broker/broker.go":   "a bubble waits for all that read and write, which Close ends",
		"tests/world/node.go":            "Close of the world waits for all processes",
		"tests/world/world.go":           "Close waits for all that it ends",

		"examples/azure-ratelimit/api.go":       "close waits for the server's end",
		"examples/azure-ratelimit/database.go":  "close waits for the server's end",
		"examples/azure-ratelimit/processor.go": "run waits for its queue's Run",
		"examples/azure-ratelimit/story.go":     "play waits for all parts before it returns",
		"internal/server/analytics.go":          "Rows waits for all that it asks",
		"internal/yardstick/yardstick.go":       "the cleanup of the test waits for it",
		"internal/server/limitmade.go":          "makeKnown waits for all that it asks",
	}
}

// variables are package variables that are allowed: slot.x, or x at the root.
func variables() map[string]string {
	return map[string]string{
		"internal/loopback.own":  "ports are the process's, whoever in it asks",
		"internal/ticket.strict": "an encoding, compiled once",
	}
}

// sleepers are files of tests that may sleep outside a bubble, because what
// they wait for is a real process.
func sleepers() map[string]string {
	return map[string]string{}
}
