// Package cluster shows that several headgates act as one room: real processes
// on loopback, a plain balancer before them, an origin as the judge, and visitors
// who join, poll, enter, browse and leave through whichever node they meet.
//
// # What is judged
//
// At no instant are more inside than the limit, counted at the origin from the
// first byte in to the last byte out and one session more; in no 60 s more
// newcomers; nobody loses a place, is shown one further back, is sent back while
// inside, or is overtaken by more than 3 s by somebody who came later; a used
// ticket never admits again; no answer is an error, and no request stays without
// one, but those at a node that was killed or stopped at that moment.
//
// # What can be done to the nodes
//
// Kill (SIGKILL), freeze (SIGSTOP), restart (SIGTERM), and cut off: nodes reach
// each other through proxies of the harness, one before each node's two cluster
// ports, which can close or silence all links of a node. Whose link it is, the
// owner of its other end tells (/proc), so this runs on Linux only. Between
// balancer and visitors answers can be lost after the request was passed on.
//
// # Several data centers
//
// TestSites… are three data centers, sjc, lhr and del, that share the limits of one
// room: sjc is the home of Anywhere. Each is one node, a cluster of its own, for this
// runs on machines of two cores: what three nodes of one data center do to each other,
// the others show. Each has a balancer of its own before it, and a visitor stays with
// the one it came to first, by shares that change while the test runs. All have one
// origin, which judges all together. What goes between two data centers is 40 ms late
// each way, in order and without a limit of bandwidth, and can be closed or silenced
// for each pair. The order of who came within 1.1 s is not judged, nor, while data
// centers are cut off from each other, that between them.
//
// # Queues
//
// TestQueues… put jobs at three nodes and a worker and deliver them to a target, the judge:
// each job that was answered arrives, again only as often as was in flight or in an unwritten
// group of outcomes when a node was lost, never more than the limit in any second, and after
// how long a pause.
//
// # Running it
//
//	go test -tags cluster ./tests/cluster                 all scenarios
//	go test -tags cluster -run 'Alone|Red' ./tests/cluster one node, no cluster
//	go test -tags cluster -run Sites ./tests/cluster      several data centers
//	go test -tags cluster -run Queues ./tests/cluster -jobs 1000000
//
// # In virtual time
//
// Without the tag the same scenarios run in bubbles of testing/synctest, with whole nodes over
// a network and a store of package world: see virtual_test.go. There TestSeed plays what a seed
// draws, and TestExplore (tag explore) many seeds, until something breaks.
//
//	go test ./tests/cluster                                      all scenarios
//	go test -short ./tests/cluster                               one of each kind
//	go test ./tests/cluster -run TestKillHost -v -seed 7 -logs /tmp
//	go test ./tests/cluster -run '^TestSeed$' -v -seed 7         random faults
//	make explore SEEDS=1-500 FOR=10m
//	scripts/seeded tests/cluster -test.run '^TestSeed$' -test.v -seed 7    the same each time
package cluster
