// Package deliver sends the jobs of a queue, and the messages of webhooks, to a target over HTTP. It
// signs them (Standard Webhooks), and slows down when the target reports that it is overloaded.
//
// # Guarantees
//
// [HTTP] sends a job once for each call of Deliver: it follows no redirect and does not retry, so
// the target counts exactly what the limits of the queue have allowed. The operator's settings take
// precedence: a job can change neither the address, nor the signature, nor a fixed header. No error
// contains a secret, a body or the content of an answer.
//
// [Throttle] never allows more than the configured limit in any window.
//
// # Concurrency and cost
//
// Many goroutines may call Deliver at once; connections are kept and reused. A Throttle is
// arithmetic under a lock: the caller passes the time, and it starts no goroutine.
//
// # Limits of the package
//
// The package stores no jobs, counts no attempts and does not wait for capacity: package queue
// does. The operator configures the addresses, so any address that the URL itself contains is
// allowed. A host name that resolves to this machine or to its cloud's internal services is
// rejected.
package deliver
