package house

// Exceptions are maps from what is excused to the reason. They are functions,
// for this package holds no state either.

// waiters says of each file that starts goroutines who waits for them.
func waiters() map[string]string {
	return map[string]string{
		"internal/crowd/command.go": "runWatched waits for the line of progress before it returns",
		"internal/crowd/crowd.go":   "run waits for all its visitors before it returns",
		"internal/server/server.go": "Run waits for all parts before it returns",
		"room.go":                   "Run waits for the counter, the worker and the opening",
		"tests/crowd/origin.go":     "Close waits for the server's end",
	}
}

// variables are package variables that are allowed: slot.x, or x at the root.
func variables() map[string]string {
	return map[string]string{
		"internal/ticket.strict": "an encoding, compiled once",
	}
}

// sleepers are files of tests that may sleep outside a bubble, because what
// they wait for is a real process.
func sleepers() map[string]string {
	return map[string]string{}
}
