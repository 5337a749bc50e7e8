// Package limiters measures headgate's limits beside the limiters of others, both sides in
// one run, so that what is compared is a ratio. The others are in no go.mod of ours: make
// writes one for these tests alone.
package limiters
