// Package manage holds the rooms that operators make while headgate runs: the objects of
// Cloudflare's waiting room API (rooms, events, rules, settings of a zone), the checks of what is
// written into them, and the history of changes.
//
// # The promise
//
// What is written is read back the same, each field with its effective value: PUT replaces with
// defaults, PATCH merges. An unknown member is a fault, and so is a value that would have no
// effect: nothing is accepted and then ignored. All faults of a body are reported at once, each
// with a code and the JSON pointer of its position. A write that changes nothing is not recorded as
// a change. Each change is stored with its author, its time, and the values before and after, so
// that it can be reverted.
//
// # Concurrency and cost
//
// A Catalog is one snapshot for one caller, read from one record and written back as a whole. The
// caller that stores the record compares and swaps. The record is bounded by MaxRecordSize; pages
// are records of their own. An operation costs about 10 µs plus the encoding of the record, about 1
// ms for 100 rooms.
//
// # The files
//
//	catalog, op, query              a snapshot of all rooms; a change of it; what the API reads
//	room, zone, event, rule, live   the objects, and what is checked of each
//	field, extensions, gaps         the members of objects; those of headgate alone; those it lacks
//	wire, json, fault, file         JSON in and out, with faults; conversion to package config,
//	                                which checks names and values
//	state, history, listed          the record; changes, and how the audit log shows them
//
// # What it does not do
//
// It knows nothing of HTTP or of the store, and it checks no tokens. Package config has the type
// that its rooms are converted to, and package server opens them.
package manage
