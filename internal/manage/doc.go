// Package manage keeps the rooms that operators make while headgate runs: the objects of
// Cloudflare's waiting room API (rooms, events, rules, settings of a zone), what may be
// written into them, and how one change follows another.
//
// # The promise
//
// What is written is read back the same, each field with its effective value: PUT replaces
// with defaults, PATCH merges. A member that does not exist is a fault, and so is a value that
// would have no effect: nothing is taken and then ignored. All faults of a body are told at
// once, each with a code and the JSON pointer of its place. A change that changes nothing is
// none. Each change is kept with who made it, when, what was before and what is after, so that
// it can be taken back.
//
// # Concurrency and cost
//
// A Book is one snapshot for one caller, read from one record and written back as a whole: who
// keeps the record compares and swaps. The record is bounded by MaxRecord; pages are records of
// their own. An operation costs some 10 µs and what the record's JSON costs, about 1 ms for 100
// rooms.
//
// # What it does not do
//
// It knows no HTTP and no store, and lets nobody in: package config has the room that its
// rooms become, and package server opens it.
package manage
