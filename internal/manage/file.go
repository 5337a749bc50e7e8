package manage

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// fromFile converts a room of the file to the form of the API.
func fromFile(c *config.Room, b *Catalog) *Room {
	seconds := int64(c.SessionDuration.Seconds())
	r := newDraft().Room
	r.ID, r.Name, r.Host, r.Path = derivedID("room", c.Name), c.Name, c.Host, c.Path
	r.CreatedOn, r.ModifiedOn = b.read, b.read
	r.TotalActiveUsers, r.NewUsersPerMinute = c.TotalActiveUsers, c.NewUsersPerMinute
	r.SessionDuration, r.DisableSessionRenewal = (seconds+59)/60, !c.SessionRenewal
	r.QueueAll, r.Suspended, r.QueueingMethod = c.QueueAll, c.Suspended, c.Method
	r.QueueingStatusCode = shownStatus(int64(c.QueueingStatusCode))
	r.JSONResponseEnabled, r.EnabledOriginCommands = true, []string{"revoke"}
	r.DefaultTemplateLanguage = c.DefaultTemplateLanguage
	r.CookieAttributes = CookieAttributes{SameSite: c.CookieSameSite, Secure: string(c.CookieSecure)}
	r.Own = RoomExtensions{
		Source: "file", Origin: c.Origin.String(), Title: c.Title, SessionSeconds: seconds,
		StatusCode: int64(c.QueueingStatusCode), HardEndSeconds: int64(c.HardEnd.Seconds()),
		Closed: c.Closed, Shadow: c.Shadow, Message: c.Message, Spread: c.Spread,
		RefreshHeader: c.RefreshHeader, MaxWaiting: c.MaxWaiting,
		HoldSeconds: int64(c.Hold.Seconds()), HoldPhoneSeconds: int64(c.HoldPhone.Seconds()),
		CallHoldSeconds: int64(c.CallHold.Seconds()),
		PollMinSeconds:  int64(math.Ceil(c.PollMin.Seconds())),
		PollMaxSeconds:  int64(math.Ceil(c.PollMax.Seconds())),
		JoinLimit: JoinLimit{c.JoinLimit.Amount, int64(c.JoinLimit.Window.Seconds()),
			int64(c.JoinLimit.PrefixV4), int64(c.JoinLimit.PrefixV6), c.JoinLimit.Action,
			c.JoinLimit.DrawWeight},
		CORS: r.Own.CORS,
	}
	r.AdditionalRoutes, r.CookieSuffix = routesOf(c), c.CookieSuffix
	o := &r.Own
	o.PathCaseSensitive, o.FailOpenAfterSeconds = c.PathCaseSensitive, int64(c.FailOpenAfter.Seconds())
	o.Paths = c.Paths
	o.Exclude.Paths, o.Exclude.Methods, o.Exclude.CIDRs, o.Exclude.Headers = excludeOf(&c.Exclude)
	o.Exclude.Upgrade = c.Exclude.Upgrade
	o.Exclude.MaxInFlight, o.Exclude.MaxPerAddr = c.Exclude.MaxInFlight, c.Exclude.MaxPerAddr
	if c.CORS != nil {
		o.CORS = corsOf(c.CORS)
	}
	o.Limits, o.Page.Policy = orNone(c.Limits), c.Page.ContentSecurityPolicy
	o.Checkout = Checkout{Pass: c.Checkout.Pass, GracePaths: orNone(c.Checkout.GracePaths),
		GraceSeconds: int64(cmp.Or(c.Checkout.Grace, config.DefaultGrace).Seconds()),
		WarnSeconds:  int64(c.Checkout.Warn.Seconds())}
	o.Challenge = Challenge{c.Challenge.Kind, c.Challenge.On}
	r.TurnstileMode, r.TurnstileAction = turnstileOf(c, b)
	o.PassSharing, o.Bind = PassSharing{int64(c.PassSharing.Networks), c.PassSharing.Action}, c.Bind
	if !c.OpensAt.IsZero() {
		at := c.OpensAt.Format(timeShown)
		r.Own.OpensAt = &at
	}
	return r
}

// keptFile returns a room of the file with its events and rules, but without the texts of its
// pages: they are files of the machine.
func keptFile(c *config.Room, b *Catalog) *StoredRoom {
	k := &StoredRoom{Room: *fromFile(c, b), Events: []*Event{}, Rules: []*Rule{}}
	for i := range c.Events {
		k.Events = append(k.Events, eventFromFile(k.Name, &c.Events[i], b.read))
	}
	for i, x := range c.Rules {
		r := &Rule{ID: derivedID("rule", k.Name+" "+strconv.Itoa(i)), Action: x.Action,
			Expression: x.Expression, Description: x.Description, Enabled: x.Enabled,
			LastUpdated: b.read, Version: "1", Own: RuleExtensions{Lane: x.Lane, Share: int64(x.Share)}}
		if r.Action == "bypass" {
			r.Action = actionBypass
		}
		k.Rules = append(k.Rules, r)
	}
	return k
}

// eventFromFile converts an event of the file. Members that it does not override are null. The text
// of its page is not shown.
func eventFromFile(room string, c *config.Event, read time.Time) *Event {
	e := &Event{ID: derivedID("event", room+" "+c.Name), CreatedOn: read, ModifiedOn: read,
		Name: c.Name, StartTime: c.Start.UTC().Format(timeShown), EndTime: c.End.UTC().Format(timeShown),
		ShuffleAtEventStart: c.Shuffle, Suspended: c.Suspended,
		Own: EventExtensions{EverySeconds: int64(c.Every.Seconds()), Message: c.Message}}
	for _, x := range c.Early {
		e.Own.Early = append(e.Own.Early, EarlyGroup{x.Group, int64(x.Before.Seconds())})
	}
	if !c.PrequeueStart.IsZero() {
		at := c.PrequeueStart.UTC().Format(timeShown)
		e.PrequeueStartTime = &at
	}
	e.TotalActiveUsers, e.NewUsersPerMinute = other(c.TotalActiveUsers), other(c.NewUsersPerMinute)
	e.SessionDuration = other(int64(c.SessionDuration+time.Minute-1) / int64(time.Minute))
	e.QueueingMethod = other(c.Method)
	if c.SessionRenewal != nil {
		e.DisableSessionRenewal = new(!*c.SessionRenewal)
	}
	return e
}

// other returns a pointer to a value that overrides the room's, or nil for the zero value, which
// does not.
func other[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
