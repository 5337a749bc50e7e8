// Package deliver hands the jobs of a queue to a target by HTTP, and slows down when the
// target says that it is overrun.
//
// # The promise
//
// [HTTP] sends a job once for each call of Deliver: it follows no redirect and repeats
// nothing by itself, so the target counts what the queue's limits have let through. What the
// operator has set stands: a job can change neither the address, nor the signature, nor a
// fixed header. No error holds a secret, a body or what the target has answered.
//
// [Throttle] never lets through more than the configured limit in any window.
//
// # Concurrency and cost
//
// Deliver is called by as many goroutines as there are deliveries at once; connections are
// kept and used again. A Throttle is arithmetic under a lock: it takes the time as an argument
// and starts nothing.
//
// # What it does not do
//
// It keeps no job, counts no attempt and waits for no capacity: package queue does. Which
// addresses may be called is the operator's configuration, so none is refused that a url names. A
// host name that resolves to this machine or its cloud's services is refused.
package deliver
