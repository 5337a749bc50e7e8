// Package jobqueues measures headgate's queues beside those of others, all in one run: how many jobs a second
// are put, and how many are claimed and acknowledged, with the durability of each. It is a module of its own:
// nobody who uses headgate should have to fetch the others.
package jobqueues
