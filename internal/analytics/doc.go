// Package analytics stores what rooms, limits and queues did, by minute and then by hour, in files
// of the data folder, and answers queries about it.
//
// # The promise
//
// Counts up to the last whole minute survive a kill; a power failure may lose the last ten minutes.
// A minute is one point, however often the process started in it and however the clock changed. A
// damaged file is set aside, with a line in the log, and nothing in this package prevents headgate
// from starting. The files never exceed their limit: the oldest are deleted first.
//
// # Concurrency and cost
//
// A Recorder may be used by many goroutines at once. It reads the counters of others each 5 s, so
// it costs a request nothing. A minute is one write of a few dozen bytes per room, without a sync.
// A finished day is converted to columns: a month of a room is read in some milliseconds.
//
// # What it does not do
//
// It counts nothing itself. It knows no other node: the caller adds up the Rows of several nodes.
// It knows no visitors: there are only sums.
package analytics
