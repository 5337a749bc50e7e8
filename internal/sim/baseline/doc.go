// Package baseline models what others do, so that headgate can be seen beside it
// on the same traffic: plain models of the algorithms that the documents of
// [Strategies] describe, each with the flaw that its authors report and with the
// strength that made them choose it.
//
// All of them share one waiting line: a visitor who must wait refreshes every 20
// seconds and tries again then; where it waits, the group of an earlier minute of
// arrival goes first, and a newcomer waits too while such a group does. Where a
// document leaves a choice open, the kinder one is taken and a comment says so.
//
// Their cost is one comparison for a visitor, one look a second (or a tenth of
// one) at each worker's line, and nothing for a visitor who waits. Nobody leaves
// the line, and a scenario's faults do not touch them: they are seen at their best.
//
// These are not the programs of their authors, which are not public, and not
// measurements of them.
package baseline
