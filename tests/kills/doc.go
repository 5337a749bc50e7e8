// Package kills shows that headgate loses nothing: the real binary is killed,
// frozen and restarted while a crowd joins, polls, enters and renews, and is
// judged by what the visitors read and what the origin saw.
//
// # What is judged
//
// A ticket whose answer was read in full keeps its number, never shows a place
// further back and is honored in its order; a used ticket never admits again; a
// visitor who comes back in time is never sent back; at no instant are more
// inside than the limit, and in no 60 s more newcomers. That an fsync comes
// before the answer is read off a system call trace, for a kill alone cannot
// show it: what was written survives the process anyway.
//
// # What a kill is
//
// The process is stopped with SIGSTOP, looked at through /proc, and killed with
// SIGKILL without having run again. A write counts as in flight when a thread is
// inside write or fsync on a file below the data folder. The look is possible
// only because the process is stopped, and changes nothing: what user code would
// have done after the signal it does not do, as with SIGKILL alone.
//
// # Running it
//
//	go test -tags kills ./tests/kills    10 kills, a stop, a trace: about 2 min
//	go test -tags soak ./tests/kills     100 kills, a million waiting, an hour
//
// Without a tag only the judge is tested: that it finds each fault.
package kills
