// Package holders keeps the holders of API keys that headgate itself gives out, and finds the holder of a
// key.
//
// # The promise
//
// A key is shown once, when it is made. What is kept is its SHA-256. A key counts only while it is known
// that it has not been revoked: a node that has not compared its table with the store for longer than
// StaleAfter knows of no key whether it counts. A change is in the store before it is acknowledged, and two
// changes at the same time are made one after the other.
//
// # Concurrency and cost
//
// A Book may be used by many goroutines at once. Find takes no lock, looks at one array, and computes one
// SHA-256 for a key whose ID is known. A key that was mistyped or invented is recognized by its checksum,
// and nothing is remembered of it.
//
// # What it does not do
//
// It does not count calls: a Gate names the holder and the plan of a call, and limits count.
//
// # The files
//
// From the top down: gate puts keys in front of a handler; book follows the store and finds keys; change
// makes, changes and removes holders; record is what is stored; key is the format of keys.
package holders
