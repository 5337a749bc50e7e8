package config

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/schema"
)

// An Auto configures how a room finds its limits by what its origin answers. A limit of calls finds its
// amount in the same way, between Min and Max, and a queue its rate.
type Auto struct {
	// Mode is on, shadow (what is found changes nothing) or frozen (the limits stay as they are). "" is
	// none of them: the limits are numbers.
	Mode string

	// Min and Max bound TotalActiveUsers, which is the limit while nothing is learned, and in shadow.
	Min, Max int64

	// New says that new users per minute are found too. NewUsersPerMinute is then the most.
	New bool

	// TargetP95 is how long 95 of 100 answers of the origin may take at most. 0, the default: learned
	// while few visitors are inside.
	TargetP95 time.Duration

	// TargetErrors is the share of requests that may fail. 0, the default: 1 %.
	TargetErrors float64

	// Prometheus and Query are a server and a query in PromQL for the load of the origin, where 1 is
	// full. nil: none.
	Prometheus *url.URL
	Query      string
}

// LimitsText describes the limits of a room: 200 at once, 200 new a minute.
func (r *Room) LimitsText() string {
	most, text := "", strconv.FormatInt(r.TotalActiveUsers, 10)
	if a := &r.Auto; a.Mode != "" {
		text = a.word() + ", " + strconv.FormatInt(a.Min, 10) + " to " + strconv.FormatInt(a.Max, 10)
		if r.TotalActiveUsers != a.Min {
			text += " from " + strconv.FormatInt(r.TotalActiveUsers, 10) + " on"
		}
		if a.New {
			most = "at most "
		}
	}
	return text + " at once, " + most + strconv.FormatInt(r.NewUsersPerMinute, 10) + " new a minute"
}

// The values of Auto.Mode, and the words for them.
const (
	AutoOn     = "on"
	AutoShadow = "shadow"
	AutoFrozen = "frozen"
	AutoEvent  = "event" // of Room.At: an event has numbers of its own, and the mode counts after it

	autoWord = "auto" // for AutoOn, where a number may stand
)

// word returns the mode in the form that Amend parses.
func (a *Auto) word() string {
	if a.Mode == AutoOn {
		return autoWord
	}
	return a.Mode
}

// readActive reads a number, or the bounds of a limit that is found. A running room takes a word, for the
// bounds of its file.
func readActive(r *Room) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		a := &r.Auto
		switch {
		case n.Kind == yaml.MappingNode:
			r.TotalActiveUsers = a.read(d, key, n, maxUsers)
		case slices.Contains([]string{autoWord, AutoShadow, AutoFrozen}, n.Value):
			if a.Max == 0 {
				d.fault(key, n, wrong("write its bounds into the file: total_active_users: {auto: true, min: 50, "+
					"max: 5000}", "has no bounds in the file"))
				return
			}
			a.Mode = n.Value
			if a.Mode == autoWord {
				a.Mode = AutoOn
			}
		default:
			a.Mode = ""
			d.scalar(key, n, whole(&r.TotalActiveUsers, 1, maxUsers))
		}
	}
}

func autoFields(a *Auto, start *int64, most int64) []field {
	return []field{
		required("auto", "true", raw(&a.Mode, cleanAuto).as(schema.OneOf[any](true, AutoShadow, AutoFrozen))),
		required("min", "50", whole(&a.Min, 1, most)),
		required("max", "5000", whole(&a.Max, 1, most)),
		one("start", whole(start, 1, most)),
	}
}

// read reads the group of a number that is found, and returns where it starts.
func (a *Auto) read(d *decoder, key string, n *yaml.Node, most int64) (start int64) {
	d.mapping(key, n, autoFields(a, &start, most))
	switch {
	case !d.good(key, key+".auto", key+".min", key+".max", key+".start"):
	case a.Min > a.Max:
		d.clash(wrong("make min the smaller one", "%d is more than max (%d)", a.Min, a.Max), key+".min")
	case start != 0 && (start < a.Min || start > a.Max):
		d.clash(wrong("choose a number from min to max, or leave it out",
			"%d is not from min (%d) to max (%d)", start, a.Min, a.Max), key+".start")
	}
	return max(start, a.Min)
}

func cleanAuto(s string) (string, *mistake) {
	switch s {
	case "true":
		return AutoOn, nil
	case AutoShadow, AutoFrozen:
		return s, nil
	case "false":
		return "", wrong("write a number in place of the group, such as 200", "false finds no limit")
	}
	return "", wrong("write true, shadow or frozen", "%s is none of them", quote(s))
}

// readNew reads a number, or the most of a limit that is found.
func readNew(r *Room) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.MappingNode:
			d.mapping(key, n, newFields(r))
		case n.Value == autoWord:
			if !r.Auto.New {
				d.fault(key, n, wrong("write its bound into the file: new_users_per_minute: {auto: true, max: 3000}",
					"has no bound in the file"))
			}
		default:
			r.Auto.New = false
			d.scalar(key, n, whole(&r.NewUsersPerMinute, 1, maxUsers))
		}
	}
}

func newFields(r *Room) []field {
	return []field{
		required("auto", "true", scalar{func(n *yaml.Node) *mistake {
			if n.Value != "true" {
				return wrong("write auto: true; what total_active_users says counts for both",
					"%s is not true", quote(n.Value))
			}
			r.Auto.New = true
			return nil
		}, schema.OneOf(true)}),
		required("max", "3000", whole(&r.NewUsersPerMinute, 1, maxUsers)),
	}
}

func targetOfOriginFields(a *Auto) []field {
	return []field{
		one("p95", span(&a.TargetP95, time.Millisecond, time.Hour, false)),
		one("errors", raw(&a.TargetErrors, cleanPercent)),
	}
}

// cleanPercent parses a percentage above 0, to a half.
func cleanPercent(s string) (float64, *mistake) {
	const hint = "write a percentage from 0.01% to 50%, such as 1%"
	number, ok := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case err != nil || !ok:
		return 0, wrong(hint, "%s is not a percentage", quote(s))
	case v < 0.01:
		return 0, wrong(hint, "%s is too small", clip(s))
	case !(v <= 50): // NaN too
		return 0, wrong(hint, "%s is too large", clip(s))
	}
	return v / 100, nil
}

func signalFields(a *Auto) []field {
	return []field{
		required("prometheus", "http://127.0.0.1:9090", httpURL(&a.Prometheus)),
		required("query", "max(my_load)", text(&a.Query, cleanQuery)),
	}
}

// mostQuery is how long a query may be. Chosen: it is a part of a URL.
const mostQuery = 2000

func cleanQuery(s string) (string, *mistake) {
	if s = strings.TrimSpace(s); s == "" || len(s) > mostQuery {
		return "", wrong("write a query in PromQL with one number as its result, of at most 2,000 bytes",
			"is %d bytes long", len(s))
	}
	return s, nil
}

// checkAuto checks the keys that belong together.
func (c *Config) checkAuto(d *decoder, r *Room, k string) {
	a := &r.Auto
	if !d.good(k+"total_active_users", k+"total_active_users.auto", k+"new_users_per_minute") {
		return
	}
	if a.Mode == "" {
		for _, x := range []struct {
			key  string
			used bool
		}{
			{"new_users_per_minute", a.New},
			{"origin_target", a.TargetP95 > 0 || a.TargetErrors > 0}, {"origin_signal", a.Prometheus != nil},
		} {
			if x.used {
				d.clash(wrong("write total_active_users: {auto: true, min: 50, max: 5000}, or take it out",
					"needs a total_active_users that is found"), k+x.key)
			}
		}
		return
	}
	if r.Method == "passthrough" {
		c.warn(d, wrong("choose another method, or a number", "has no effect: method passthrough admits everybody"),
			k+"total_active_users")
	}
}

// most returns the highest number of visitors at once.
func (r *Room) most() int64 { return max(r.TotalActiveUsers, r.Auto.Max) }
