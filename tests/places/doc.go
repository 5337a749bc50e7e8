// Package places counts how many of the first places of a rush an attacker gets, by what defends the
// room and by how many cores the attacker has. The line, the limit of networks, and the costs and tries
// of challenges are headgate's own. Time is virtual, and computing is counted in iterations, which take
// as long as on one core of a server. The table of docs/challenge.md is its result.
package places
