// Package dashboard is the page on which an operator sees the rooms live and changes them. It is
// served on admin_listen, from the binary, and loads nothing from elsewhere.
//
// # The promise
//
// Package api alone decides on permissions: everything that the page reads and changes goes through
// it. The page signs in once with a token and then has a session in a cookie that no script can
// read. The token is in no page, log or URL, and is not stored. A session ends after half an hour
// without an open page, after twelve hours, when the operator signs out, or when the token is
// revoked or expires. Another site cannot use a session, and attempts to guess tokens are limited
// by address.
//
// # Concurrency and cost
//
// A Dashboard may be used by many goroutines at once. Each second it reads every room once, O(1) a
// room, and stores ten minutes by the second and an hour by ten seconds: 50 KB a room. An open page
// costs one stream. The numbers of streams, sessions and simulations are limited.
//
// # The files
//
//	dashboard, session, signin   routes; who is signed in
//	live, glance, ring, whatif   the numbers of the charts; a simulation
//	files, static                the page: room.js and parts.js choose what a chart shows and its unit,
//	                             charts.js draws it, dom.js formats numbers
//
// # What it does not do
//
// The live charts show this process only, from memory since its start. It has no encryption of its
// own: do not expose admin_listen outside the machine.
package dashboard
