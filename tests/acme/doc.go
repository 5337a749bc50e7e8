// Package acme tests the real program against a real ACME issuer: Pebble, the
// test server of Let's Encrypt, with its mock DNS, both as processes of their
// own.
//
// # What is claimed
//
// A certificate is obtained by http-01 and, where that way is closed, by
// tls-alpn-01; a restart orders nothing; a renewal comes in time, and visitors
// notice nothing of it; an issuer that is down at the start keeps nobody out.
//
// # Concurrency
//
// One test at a time: each owns its processes and ends them.
//
// # Cost
//
// About a minute and a half, most of it waiting for a certificate of 24 s to be
// renewed twice, and for what must not happen. It needs the tag acme.
//
// # What it does not do
//
// It does not leave this machine.
package acme
