// Package analytics keeps what rooms, limits and queues did, by minute and then by hour, in files
// of the data folder, and answers questions about it.
//
// # The promise
//
// What was counted before the last whole minute survives a kill; what a power failure may take is
// the last ten minutes. A minute is one point, however often the process was started in it and
// whatever the clock did. A file that is damaged is set aside, with a line in the log, and nothing
// in this package keeps a headgate from starting. The files never take more than they may: the
// oldest go first.
//
// # Concurrency and cost
//
// A Keeper may be used by many goroutines at once. It looks at what others count each 5 s: what is
// counted costs a request nothing here. A minute is one write of some dozen bytes for each
// room, and no sync. A finished day becomes columns: a room's month is read in some milliseconds.
//
// # What it does not do
//
// It counts nothing itself, it knows no other node (who asks them adds up their Rows), and it
// knows nothing of visitors: there are only sums.
package analytics
