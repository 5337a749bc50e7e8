// Package control decides what the processes of a cluster agree on while they run: live changes of
// rooms and limits, dynamic rooms and limits, and what data centers share of these.
//
// # The promise
//
// A change is in the store before it is in force. Two changes at the same time are made one after
// the other, and neither is lost. Old data from a former leader of the store never replaces newer
// data.
//
// # Concurrency
//
// Values may be used by many goroutines at once. The turn of changes, a mutex of the process,
// guards what is put into force.
//
// # Limits
//
// The package does not serve visitors and does not open rooms: the process does that.
//
// # The files
//
// From the top down, of limits: limitschange changes one and follows what others changed; limitsmake
// makes and removes one; limitsserve answers other nodes and data centers; limitstake puts into force
// what the records say; limitshome asks the home; limits has the records, limitsdynamic and
// definitions their types. datacenters shares limits and the changes of rooms (roomchanges) with
// other data centers. limitsauto finds amounts. rooms stores dynamic rooms, codes what is revoked; they
// use none of these.
package control

import (
	"time"
)

// FollowEvery is how often a process checks for changes: it finds a change whose message was lost
// this late.
const FollowEvery = 5 * time.Second

// ChangeWait limits a live change; the record and the store take milliseconds.
const ChangeWait = 15 * time.Second
