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
// # The files
//
// From the top down: rows answers a query, and advice recommends settings. keeper counts, minute by
// minute; files has the files of all days, day one finished day in columns, log the day that is being
// written, grid a period in equal steps. metric has the figures of answers; row is one step of a series,
// and schema what a series counts.
//
// # What it does not do
//
// It counts nothing itself. It knows no other node: the caller adds up the Rows of several nodes.
// It knows no visitors: there are only sums.
package analytics
