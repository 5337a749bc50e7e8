// Package baddays puts the real binary through what happens to a data folder in
// the end: the disk is full, the file system turns read-only, bits flip, keys
// are gone, a newer version was here, two processes want the same folder, a
// backup is all that is left.
//
// # What is judged
//
// Who is inside stays inside; who waits keeps the place and the ticket; nobody
// new is let in who might be one too many; what cannot be helped is said once,
// with what to do. Visitors are HTTP clients, and headgate, its doctor, backup and
// restore are processes.
//
// # Running it
//
//	go test -tags kills ./tests/baddays    about 2 min
//
// Full disks and read-only ones are real mounts in a mount namespace, as root or
// by a user namespace (unshare of util-linux). Where neither is allowed these
// tests fail and say so.
package baddays
