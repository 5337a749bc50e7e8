// Package cloudflare drives the real binary with the unmodified client of Cloudflare's API. It is a
// module of its own: nobody who uses headgate should have to fetch that client.
package cloudflare
