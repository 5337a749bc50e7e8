package analytics

import (
	"fmt"
	"time"
)

// A RoomSettings holds the settings of a room that the advice uses.
type RoomSettings struct {
	Room        string
	Active, New int64
	Session     time.Duration
	Renewed     bool // each request renews the session
	Hold        time.Duration
}

// An Advice is a setting that could be better, and the reason.
type Advice struct {
	Room    string             `json:"room"`
	Code    string             `json:"code"`
	Text    string             `json:"says"`
	Action  string             `json:"do"`
	Figures map[string]float64 `json:"figures"`
}

// These are the thresholds of the rules, described in docs/analytics.md. Those of sessions are
// Cloudflare's advice. The others are chosen: values that an operator would look into, and enough
// cases to rule out chance.
const (
	enough       = 100             // visits, joins or minutes that a rule needs
	sessionPart  = 0.7             // of session_duration
	backPart     = 0.05            // of visits followed by another just after the end
	holdPart     = 0.02            // of places requested again after they were gone
	expiredPart  = 0.02            // of places that expired: hold matters
	abandonPart  = 0.3             // of places
	freePart     = 0.5             // of total_active_users, if more was never used
	slowPage     = 2 * time.Second // for 95 % of answers
	slowerAt     = 0.8             // of total_active_users: there the origin is busy
	slowerTimes  = 2.0             // than when it is not
	failedPart   = 0.01            // of requests
	slowerLeast  = 200 * time.Millisecond
	slowerEnough = 1000 // requests
)

// Advise evaluates what a room did, in steps of step seconds.
func Advise(f *RoomSettings, rows []Row) (all []Advice) {
	if len(rows) == 0 {
		return nil
	}
	from, to := rows[0].At, rows[len(rows)-1].At+1
	sum := Merge(Room, from, to, to-from, rows)[0]
	a := &adviser{f: f, sum: &sum, rows: rows}
	for _, rule := range []func() *Advice{a.session, a.tooShort, a.hold, a.abandon, a.limit, a.slow,
		a.slower, a.failed} {
		if x := rule(); x != nil {
			x.Room = f.Room
			all = append(all, *x)
		}
	}
	return all
}

type adviser struct {
	f    *RoomSettings
	sum  *Row
	rows []Row
}

func (a *adviser) seconds(i int, q float64) float64 {
	d, _ := a.sum.quantile(i, q)
	return d.Seconds()
}

// session checks the session duration. A session must outlast the visit if it is fixed, else the
// longest silence in it.
func (a *adviser) session() *Advice {
	i, what := RoomSilent, "the longest pause between two requests"
	if !a.f.Renewed {
		i, what = RoomInside, "the time from the first request to the last"
	}
	if a.sum.count(i) < enough {
		return nil
	}
	session := a.f.Session.Seconds()
	p50, p95 := a.seconds(i, 0.5), a.seconds(i, 0.95)
	figures := map[string]float64{"p50_seconds": p50, "p95_seconds": p95, "session_seconds": session}
	switch {
	case p50 >= sessionPart*session:
		return &Advice{Code: "session_short", Figures: figures,
			Text: fmt.Sprintf("in half of the sessions, %s is %s or more: that is close to session_duration, %s",
				what, told(p50), a.f.Session),
			Action: "set session_duration to " + told(p95*1.5) + ", and total_active_users to what the origin can handle"}
	case p95 < sessionPart*session && a.f.Session > time.Minute:
		return &Advice{Code: "session_long", Figures: figures,
			Text: fmt.Sprintf("in 95 %% of the sessions, %s is less than %s, but session_duration is %s: visitors "+
				"that have left still hold slots", what, told(p95), a.f.Session),
			Action: "set session_duration to " + told(max(60, p95*1.5)) + ": waiting visitors get in sooner"}
	}
	return nil
}

// tooShort applies when visitors come again just after their session ended.
func (a *adviser) tooShort() *Advice {
	back, ended := a.sum.Values[RoomPassesBack], a.sum.Values[RoomAdmitted]
	if back < enough/10 || float64(back) < backPart*float64(ended) {
		return nil
	}
	return &Advice{Code: "session_returns",
		Figures: map[string]float64{"returned": float64(back), "admitted": float64(ended)},
		Text:    fmt.Sprintf("%d of %d visitors came back less than one session_duration after their session ended", back, ended),
		Action:  "increase session_duration, or set session_renewal: true so that requests renew the session"}
}

func (a *adviser) hold() *Advice {
	back, joined, expired := a.sum.Values[RoomPlacesBack], a.sum.Values[RoomJoined], a.sum.Values[RoomExpired]
	if joined < enough || float64(back) < holdPart*float64(joined) ||
		float64(expired) < expiredPart*float64(joined) {
		return nil
	}
	return &Advice{Code: "hold_short",
		Figures: map[string]float64{"returned": float64(back), "expired": float64(expired),
			"joined": float64(joined), "hold_seconds": a.f.Hold.Seconds()},
		Text:   fmt.Sprintf("%d visitors came back after more than hold, %s, and had lost their place", back, a.f.Hold),
		Action: "set hold to " + told(2*a.f.Hold.Seconds()) + ", and hold_phone to more than that"}
}

func (a *adviser) abandon() *Advice {
	left, joined := a.sum.Values[RoomLeft]+a.sum.Values[RoomExpired], a.sum.Values[RoomJoined]
	if joined < enough || float64(left) < abandonPart*float64(joined) {
		return nil
	}
	p90 := a.seconds(RoomWaited, 0.9)
	return &Advice{Code: "many_abandon",
		Figures: map[string]float64{"abandoned": float64(left), "joined": float64(joined),
			"wait_p90_seconds": p90},
		Text: fmt.Sprintf("%d of the %d visitors that joined the line left it; 90 %% of those admitted waited less than %s", left, joined,
			told(p90)),
		Action: "set message to explain the wait to visitors; raise the limits if the origin can handle more"}
}

// limit applies when people wait for new_users_per_minute although there are never many users at
// once, or when no limit matters.
func (a *adviser) limit() *Advice {
	most, limit := a.sum.Values[RoomActiveMax], a.f.Active
	if a.sum.Values[RoomSeen] < enough*60 || float64(most) >= freePart*float64(limit) || most == 0 {
		return nil
	}
	x := &Advice{Code: "limit_never_reached",
		Figures: map[string]float64{"most_active": float64(most), "total_active_users": float64(limit),
			"most_waiting": float64(a.sum.Values[RoomWaitingMax])},
		Text:   fmt.Sprintf("there were never more than %d users inside at once, of %d allowed", most, limit),
		Action: "nothing to do: traffic never reaches total_active_users"}
	if a.sum.Values[RoomWaitingMax] > 0 {
		x.Text += "; visitors waited nevertheless, because of new_users_per_minute"
		x.Action = fmt.Sprintf("raise new_users_per_minute, now %d, if the origin can handle it, or lower session_duration",
			a.f.New)
	}
	return x
}

func (a *adviser) slow() *Advice {
	if a.sum.count(RoomOrigin) < slowerEnough || a.seconds(RoomOrigin, 0.95) < slowPage.Seconds() {
		return nil
	}
	p50, p95 := a.seconds(RoomOrigin, 0.5), a.seconds(RoomOrigin, 0.95)
	return &Advice{Code: "origin_slow",
		Figures: map[string]float64{"p50_seconds": p50, "p95_seconds": p95},
		Text:    fmt.Sprintf("the origin takes %s or more for the slowest 5 %% of the responses", told(p95)),
		Action:  "find out what is slow; meanwhile, lower total_active_users and see whether it helps"}
}

// slower applies when the origin is slow with a full room, and fast otherwise.
func (a *adviser) slower() *Advice {
	var full, free []Row
	for _, r := range a.rows {
		if r.Values[RoomSeen] > 0 {
			use := float64(r.Values[RoomActive]) / float64(r.Values[RoomSeen])
			if use >= slowerAt*float64(a.f.Active) {
				full = append(full, r)
			} else {
				free = append(free, r)
			}
		}
	}
	if len(full) == 0 || len(free) == 0 {
		return nil
	}
	from, to := a.rows[0].At, a.rows[len(a.rows)-1].At+1
	busy, idle := Merge(Room, from, to, to-from, full)[0], Merge(Room, from, to, to-from, free)[0]
	if busy.count(RoomOrigin) < slowerEnough || idle.count(RoomOrigin) < slowerEnough {
		return nil
	}
	b, _ := busy.quantile(RoomOrigin, 0.9)
	i, _ := idle.quantile(RoomOrigin, 0.9)
	if b < slowerLeast || float64(b) < slowerTimes*float64(i) {
		return nil
	}
	return &Advice{Code: "limit_too_high",
		Figures: map[string]float64{"p90_full_seconds": b.Seconds(), "p90_else_seconds": i.Seconds()},
		Text: fmt.Sprintf("when the room is full, the slowest 10 %% of the responses of the origin take %s or more, otherwise %s",
			told(b.Seconds()), told(i.Seconds())),
		Action: fmt.Sprintf("lower total_active_users, now %d: the origin cannot handle so many visitors", a.f.Active)}
}

func (a *adviser) failed() *Advice {
	v := a.sum.Values
	failed := float64(v[RoomOrigin5xx] + v[RoomOriginNone])
	all := failed + float64(v[RoomOrigin2xx]+v[RoomOrigin3xx]+v[RoomOrigin4xx])
	if all < slowerEnough || failed < failedPart*all {
		return nil
	}
	return &Advice{Code: "origin_fails",
		Figures: map[string]float64{"failed": failed, "requests": all},
		Text:    fmt.Sprintf("%.1f %% of the requests failed at the origin", 100*failed/all),
		Action:  "read the log of the origin; if it fails under load, lower total_active_users"}
}

// told formats a time with no more precision than needed.
func told(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 2*time.Minute:
		return d.Round(time.Second).String()
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("%dh", int(d.Round(time.Hour).Hours()))
}
