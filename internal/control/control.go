// Package control decides what the processes of a cluster agree on while they run: live changes of
// rooms and limits, dynamic rooms and limits, and what data centers share of these.
//
// # The promise
//
// A change is in the store before it is in force. Of two changes at the same time one is made upon
// the other. What a leader of the store tells that is none any more takes nothing back.
//
// # Concurrency
//
// Values may be used by many goroutines at once. What is put into force is guarded by the turn of
// changes of the process.
//
// # What it does not do
//
// It serves no visitor, and it does not open rooms: the process does.
package control

import "time"

// FollowEvery is how late a change is found whose message was lost.
const FollowEvery = 5 * time.Second
