// Package webhook says what of a room, or of the limits, is told to webhooks, and when.
//
// # The promise
//
// [Record.Next] compares a [Look] with what the record says was told last, and makes a
// [Message] of each difference that has lasted. The message stands in the record with its ID, so once
// that is kept, whoever sends it sends the same one. A line that comes and
// goes makes at most one message in 5 s and one in 60 s, however fast it flickers.
//
// # Concurrency and cost
//
// It has no state, no lock and no I/O: the time is an argument, and the caller keeps the record. A
// look costs some map look-ups.
//
// # What it does not do
//
// It keeps and sends nothing. What began and ended between two looks is not told.
package webhook
