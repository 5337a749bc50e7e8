// Package limiters measures headgate's limits beside the limiters of others, both sides in
// one run, so that what is compared is a ratio. It is a module of its own: nobody who uses
// headgate should have to fetch the others. It also offers ten times what a limit lets pass,
// and gives a limit a million keys, or with -keys ten.
package limiters
