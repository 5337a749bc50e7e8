package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// whole formats a number with commas: 12,345.
func whole(n int64) string {
	s := strconv.FormatInt(n, 10)
	from := len(s) - len(strings.TrimLeft(s, "-"))
	for i := len(s) - 3; i > from; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent formats a share with as many digits as needed. A share that is not exactly 0 or 100 % is
// never shown as such.
func percent(x float64) string {
	p := 100 * x
	switch {
	case p == 0 || p == 100:
		return strconv.Itoa(int(p)) + " %"
	case p > 0 && p < 0.05:
		return "<0.1 %"
	case p < 100 && p >= 99.95:
		return ">99.9 %"
	case p >= 1000:
		return whole(int64(p+0.5)) + " %"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}

// millis writes milliseconds.
func millis(ms float64) string {
	if ms >= 100 {
		return whole(int64(ms + 0.5))
	}
	return strconv.FormatFloat(ms, 'f', 1, 64)
}

// period formats a duration with its two largest units: 4 min 10 s.
func period(d time.Duration) string {
	if d > 0 && d < time.Second {
		return fmt.Sprintf("%d ms", max(1, d.Round(time.Millisecond).Milliseconds()))
	}
	units := []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	for i, u := range units[:3] {
		next := units[i+1]
		near := d.Round(next.size)
		if near < u.size {
			continue
		}
		s := fmt.Sprintf("%d %s", near/u.size, u.name)
		if rest := near % u.size / next.size; rest > 0 {
			s += fmt.Sprintf(" %d %s", rest, next.name)
		}
		return s
	}
	return fmt.Sprintf("%d s", d.Round(time.Second)/time.Second)
}

// count is a number of things: 1 visitor, 2 visitors.
func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return whole(n) + " " + what + "s"
}

// join lists things: a, b and c.
func join(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}
