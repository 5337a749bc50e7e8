// Package alerts lets a real Prometheus scrape real headgate processes, with the alert rules of
// monitoring/, and asks it what Grafana's dashboard would.
//
// # What is judged
//
// Three processes in two data centers have a room, a lane, a limit, a queue and a certificate.
// In peace no alert of the room fires. A crowd lets it queue, the origin goes and comes back, the
// process that counts the room is killed: each time the alert that says so fires, and is silent
// again when it is over. HeadgateOverLimit is not even pending, ever. No rule fails to be
// evaluated. Every expression of the dashboard has an answer, and the sums over nodes and data
// centers are the visitors who were sent.
//
// # Running it
//
//	make alerts                             with Debian's Prometheus: 40 s
//	go test -tags alerts -v ./tests/alerts
package alerts
