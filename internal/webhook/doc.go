// Package webhook decides which changes of a room, or of the limits, are sent to webhooks, and
// when.
//
// # Guarantees
//
// [Record.Next] compares an [Observation] with the state that the record says was sent last, and
// creates a [Message] for each difference that has lasted long enough. The message and its ID are
// stored in the record, so after the record is saved every node that sends the message sends the
// same one. A line that appears and disappears causes at most one message in 5 s and one in 60 s,
// however quickly it changes.
//
// # Concurrency and cost
//
// The package has no state, no lock and no I/O: the caller passes the time and stores the record.
// An observation costs a few map lookups.
//
// # Limits of the package
//
// It stores and sends nothing: package server does, and package deliver signs. A change that begins
// and ends between two observations is not reported.
package webhook
