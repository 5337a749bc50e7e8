// Package siege attacks a real headgate process that runs with its default settings, while honest
// people want to come in, and judges what both sides reach. Its table is the measure of the claims
// in SECURITY.md.
//
//	make siege                                       every scenario, about 28 minutes
//	make siege SIEGE=TestSiegeShort                  two of them, about a minute
//	make siege SIEGE='TestSiege$$/rush'              what a challenge and invitations are worth in a rush
//	make siege SIEGE='TestSiege$$/cookieless_1$$'    one
//
// An attacker has an IPv4 address in a /24 of its own (127.32.k.1), or one of the addresses of a
// single /24 where a scenario says so; an honest person has one in a /24 of its own
// (127.64.0.0/10). All of these are loopback: nothing leaves the machine.
//
// The package judges by the log of the origin, by what people were told and by the admin
// address. It compares times only with times that were measured in the same run. The reach of
// each measure stands in reach_test.go. Every load is bounded in rate, number and time.
//
// Without the build tag siege only the judge itself is tested. A siege belongs to one test.
package siege
