package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// print prints the observations.
func (v *verdict) print(out io.Writer) {
	w := v.plan.window
	line := func(what, format string, args ...any) {
		fmt.Fprintf(out, "  %-34s%s\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "\nAda called %d times in %v, in six cities. She may %d times in %v.\n\n", len(v.calls),
		time.Duration(v.plan.windows)*w, amount, w)
	line(fmt.Sprintf("passed in each full %v", w), "%d, %.1f on average", v.full, v.mean())
	if v.silent > 0 {
		line("", "of the last %d; nothing passed for %.1f s before them", v.after, v.silent.Seconds())
	}
	line(fmt.Sprintf("most in any %v", w), "%s", v.worst())
	line("fixed windows, city by city", "would have been %d in some %v, and %d in all instead of %d",
		v.fixed, w, v.through, len(v.passes))
	line("headers", "remaining %d to %d; Retry-After with %d of %d refusals", v.least, v.highest,
		v.hinted, v.refused)
	if v.failed > 0 {
		line("failed", "%d calls, neither passed nor refused", v.failed)
	}
	line("answers", "half within, 99 of 100, all")
	for city, c := range places() {
		yes, no := v.delays(city)
		line("  "+c.title, "passed %s   refused %s", spread(yes), spread(no))
	}
	fmt.Fprintln(out)
	for _, text := range v.faults() {
		fmt.Fprintln(out, "WRONG:", text)
	}
	if len(v.faults()) == 0 {
		fmt.Fprintf(out, "Six cities, one count, %d. Ada is told to come again, and she does, she does.\n",
			amount)
	}
}

// worst returns the maximum per window, and how certain it is, as text.
func (v *verdict) worst() string {
	if v.most == v.sure || v.early <= 0 {
		return fmt.Sprint(v.most)
	}
	return fmt.Sprintf("%d beyond doubt; as they arrived %d, %v too close, which the way there can explain",
		v.sure, v.most, v.early.Round(10*time.Microsecond))
}

// delays returns the response times of a city.
func (v *verdict) delays(city int) (yes, no []time.Duration) {
	for _, c := range v.calls {
		switch {
		case c.city != city:
		case c.status == 200:
			yes = append(yes, c.took)
		case c.status == 429:
			no = append(no, c.took)
		}
	}
	return yes, no
}

// spread formats the median, the 99th percentile and the maximum, in milliseconds.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.SortFunc(all, cmp.Compare)
	at := func(share float64) float64 {
		return 1000 * all[int(share*float64(len(all)-1))].Seconds()
	}
	return fmt.Sprintf("%5.1f %6.1f %6.1f ms", at(0.5), at(0.99), at(1))
}
