// Package queues shows that a queue loses nothing and never overruns its target: the real
// binary is killed while jobs are put and delivered, and the target judges.
//
// # What is judged
//
// Each job whose put was answered reaches the target; more than once only as often as was in
// flight or in an unwritten group of outcomes at a kill; and the target's own count never
// exceeds the limit in any window.
//
// # Running it
//
//	go test -tags kills ./tests/queues                   100,000 jobs, kills: about 30 s
//	go test -tags kills ./tests/queues -jobs 1000000     as many as the issue says
//	go test -tags bench ./tests/queues                   memory of a million waiting jobs, the pace, and
//	                                                     processors and holders that come and go
package queues
