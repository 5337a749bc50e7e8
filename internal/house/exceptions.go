package house

// Exceptions are maps from what is excused to the reason. They are functions,
// for this package holds no state either.

// waiters says of each file that starts goroutines who waits for them.
func waiters() map[string]string {
	return map[string]string{}
}

// variables are package variables that are allowed, as dir.name.
func variables() map[string]string {
	return map[string]string{}
}

// sleepers are files of tests that may sleep outside a bubble, because what
// they wait for is a real process.
func sleepers() map[string]string {
	return map[string]string{}
}
