// Package dashboard is the page on which an operator sees the rooms live and changes
// them. It is served on admin_listen, from the binary, and asks nobody else.
//
// # The promise
//
// Who may do what is decided by package api alone: all that the page reads and
// changes goes through it. The page signs in once with a token and then holds a
// session in a cookie that no script can read; the token stands in no page, log or
// address, and is not kept. A session ends when nobody looks for half an hour, after
// twelve hours, when the operator signs out, or when the token is revoked or
// expires. Another site cannot use it, and who guesses tokens is slowed by address.
//
// # Concurrency and cost
//
// A Dashboard may be used by many goroutines at once. Each second it reads every
// room once, O(1) a room, and keeps ten minutes by the second and an hour by ten
// seconds: 50 KB a room. A page that is open costs one stream; streams, sessions and
// simulations are bounded.
//
// # What it does not do
//
// The live charts are of this process, in memory, and begin with it. It has no encryption of
// its own: admin_listen belongs behind the machine's walls.
package dashboard
