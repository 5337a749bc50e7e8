// Package suggest finds the known word that somebody probably meant when they wrote an unknown one.
// Error messages use it for hints.
//
// Many goroutines may call its functions at once. They cost some microseconds for each known word,
// so use them only for errors. They compare letters, not meanings.
package suggest

import "strings"

// longest is the maximum length of a word to look for. Longer ones would cost too much.
const longest = 64

// Nearest returns the known word that was most likely meant by word, or "". It ignores case, - and
// _.
func Nearest(word string, known []string) string {
	if word == "" || len(word) > longest {
		return ""
	}
	flat := strings.NewReplacer("-", "_")
	word = flat.Replace(strings.ToLower(word))

	best, bestAway := "", max(1, len(word)/3)+1
	for _, k := range known {
		if away := distance(word, flat.Replace(strings.ToLower(k)), bestAway); away < bestAway {
			best, bestAway = k, away
		}
	}
	if best != "" {
		return best
	}
	return onlyOneWith(word, known)
}

// onlyOneWith returns the one known word that has word as a part, such as session_renewal for
// renewal, or "" if there are several.
func onlyOneWith(word string, known []string) string {
	const shortest = 4 // many words contain shorter parts
	if len(word) < shortest {
		return ""
	}
	found := ""
	for _, k := range known {
		if !strings.Contains(strings.ReplaceAll(k, "-", "_"), word) {
			continue
		}
		if found != "" {
			return ""
		}
		found = k
	}
	return found
}

// distance returns the number of letters to add, drop, replace or swap with a neighbor to turn a
// into b: the optimal string alignment distance. The result is at most most.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	var rows [3][longest + longest/3 + 3]int
	before, last, row := rows[0][:len(b)+1], rows[1][:len(b)+1], rows[2][:len(b)+1]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			other := 1
			if a[i-1] == b[j-1] {
				other = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+other)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > most { // a swap reaches one row further back and costs one
			return most
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], most)
}
