package traffic

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stampHint describes the time formats of a table.
const stampHint = "write times as 2023-09-11T11:45:54Z, or as Unix seconds or milliseconds"

// stamp parses the time of a table. It is RFC 3339, possibly with a space instead of the T, and UTC
// without a zone; or a number of seconds, milliseconds, microseconds or nanoseconds since 1970.
func stamp(text []byte) (t time.Time, ok bool) {
	text = bytes.TrimSpace(text)
	if len(text) > 64 {
		return t, false
	}
	if at, ok := number(text); ok {
		return at, true
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", time.DateTime,
		"2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, string(text)); err == nil {
			// A time that a Duration of nanoseconds since 1970 cannot hold is rejected.
			return t, t.Year() >= 1970 && t.Year() < 2200
		}
	}
	return t, false
}

// These are the largest numbers taken as seconds, milliseconds and microseconds since 1970. Each is
// the year 5138 in its own unit and 1973 in the next.
const (
	mostSeconds = 1e11
	mostMillis  = 1e14
	mostMicros  = 1e17
)

// number parses a decimal number as a time since 1970. It reads the fraction digit by digit,
// because a float64 would round it to parts of a microsecond.
func number(text []byte) (t time.Time, ok bool) {
	whole, part, _ := bytes.Cut(text, []byte("."))
	n, err := strconv.ParseInt(string(whole), 10, 64)
	if err != nil || n < 0 || whole[0] == '+' {
		return t, false
	}
	unit := time.Second
	switch {
	case n >= mostMicros:
		unit = time.Nanosecond
	case n >= mostMillis:
		unit = time.Microsecond
	case n >= mostSeconds:
		unit = time.Millisecond
	}
	if n > math.MaxInt64/int64(unit)-1 {
		return t, false
	}
	at, step := time.Duration(n)*unit, unit
	for _, c := range part {
		if c < '0' || c > '9' {
			return t, false
		}
		step /= 10
		at += step * time.Duration(c-'0')
	}
	return time.Unix(0, int64(at)).UTC(), true
}

// span parses the length of a visit: 90, 12.5 or 1m30s. Without a unit it is in seconds.
func span(text []byte) (d time.Duration, ok bool) {
	s := strings.TrimSpace(string(text))
	if s == "" {
		return 0, true
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		d = time.Duration(f * float64(time.Second))
		return d, f >= 0 && f <= maxSpan.Seconds()
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0 && d <= maxSpan
}

// logStampSize is that of 11/Sep/2023:11:45:54 +0000.
const logStampSize = 26

// logStamp parses the time of an access log, which has a fixed format.
func logStamp(b []byte) (t time.Time, ok bool) {
	if len(b) != logStampSize || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' ||
		b[17] != ':' || b[20] != ' ' || b[21] != '+' && b[21] != '-' {
		return t, false
	}
	month := 1 + slices.Index(strings.Fields("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"),
		string(b[3:6]))
	day, year := digits(b[0:2]), digits(b[7:11])
	hour, minute, second := digits(b[12:14]), digits(b[15:17]), digits(b[18:20])
	zone := digits(b[22:24])*60 + digits(b[24:26])
	if month == 0 || min(day, year, hour, minute, second) < 0 || digits(b[22:26]) < 0 || year < 1970 ||
		year >= 2200 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60 {
		return t, false
	}
	if b[21] == '-' {
		zone = -zone
	}
	return time.Date(year, time.Month(month), day, hour, minute-zone, second, 0, time.UTC), true
}

// digits parses a number of digits only, or returns −1.
func digits(b []byte) int {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}
