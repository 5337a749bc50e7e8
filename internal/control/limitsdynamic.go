package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/ratelimit"
)

// Limits for the dynamic limits, for one data center and for all data centers each. Chosen: as many
// as in the file, and a share has room for them (mostShare).
const (
	mostDynamic      = 1000
	mostDynamicBytes = 128 << 10
)

// A dynamicLimit is a limit that was made with the API, and its live changes since.
type dynamicLimit struct {
	Rule  json.RawMessage   `json:"rule"` // in the form of the file
	Pairs map[string]string `json:"pairs,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. Records from before the key visit was called session stay
// valid.
func (x *dynamicLimit) UnmarshalJSON(b []byte) error {
	type plain dynamicLimit
	if err := json.Unmarshal(b, (*plain)(x)); err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	var key []string
	if json.Unmarshal(x.Rule, &fields) != nil || json.Unmarshal(fields["key"], &key) != nil {
		return nil // limit reports what is wrong
	}
	i := slices.Index(key, "visit")
	if i < 0 {
		return nil
	}
	key[i] = ratelimit.KeySession
	var err error
	if fields["key"], err = json.Marshal(key); err == nil {
		x.Rule, err = json.Marshal(fields)
	}
	return err
}

// limit returns the configuration of the limit, and the style of its response headers.
func (x *dynamicLimit) limit(name string) (l ratelimit.Limit, style ratelimit.HeaderStyle, err error) {
	c, err := config.ParseLimit(name, x.Rule)
	if err != nil {
		return l, "", err
	}
	l = limitConfig(c)
	if err = api.SetLimit(&l, x.Pairs); err == nil {
		_, err = ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{l}})
	}
	return l, ratelimit.HeaderStyle(c.Headers), err
}

// A dynamicSet is a snapshot of dynamic limits, by name.
type dynamicSet struct {
	// Version is the time of the write in ms since 1970, or one more than the previous version if
	// that is later.
	Version uint64                  `json:"version,omitempty"`
	Limits  map[string]dynamicLimit `json:"limits,omitempty"`
}

// next returns the version for the next write.
func (m *dynamicSet) next() uint64 { return max(uint64(time.Now().UnixMilli()), m.Version+1) }

// put sets a limit in the set, or removes it if x is nil. It does not change the old map.
func (m *dynamicSet) put(name string, x *dynamicLimit, version uint64) error {
	m.Version, m.Limits = version, maps.Clone(m.Limits)
	delete(m.Limits, name)
	if x == nil {
		return nil
	}
	if m.Limits == nil {
		m.Limits = map[string]dynamicLimit{}
	}
	m.Limits[name] = *x
	b, err := json.Marshal(m)
	if err == nil && (len(m.Limits) > mostDynamic || len(b) > mostDynamicBytes) {
		err = &api.RejectedError{
			Reason: fmt.Sprintf("limits that were made would be more than %d, or larger than %d KB together",
				mostDynamic, mostDynamicBytes>>10),
			Do: "remove some (headgate limit remove NAME); what stays for good belongs into the configuration"}
	}
	return err
}

// A dynamicRecord is all dynamic limits that a data center stores.
type dynamicRecord struct {
	Own dynamicSet `json:"own"` // of this data center, or of each process
	All dynamicSet `json:"all"` // of all data centers: a copy from the home
	// From is the data center from which All comes; it is this one if it was the home.
	From string `json:"from,omitempty"`
}

// setOf returns the set of all data centers or the own set.
func (r *dynamicRecord) setOf(all bool) *dynamicSet {
	if all {
		return &r.All
	}
	return &r.Own
}

// find reports whether a set has a limit, and whether it is the set of all data centers.
func (r *dynamicRecord) find(name string) (all, ok bool) {
	if _, ok = r.Own.Limits[name]; ok {
		return false, true
	}
	_, ok = r.All.Limits[name]
	return true, ok
}

// versions returns the versions of both sets, and the newer one.
func (r *dynamicRecord) versions() (own, all, newest uint64) {
	return r.Own.Version, r.All.Version, max(r.Own.Version, r.All.Version)
}

// before reports whether a record is older than the state in force. A suspended former leader of
// the store may return an old record. Limits in force must not be removed for it, because with a
// limit the usage of its keys is lost. The version of All may fall if the home of all data centers
// has changed and the new home has made fewer limits.
func (r *dynamicRecord) before(revision uint64, taken *taken, upTo [2]uint64) bool {
	own, all, newest := r.versions()
	return own < upTo[0] || all == 0 && upTo[1] > 0 || taken.isAfter(revision, newest)
}

// inForce is a dynamic limit as it is in force here.
type inForce struct {
	dynamicLimit
	style ratelimit.HeaderStyle
}

// has reports whether the set has a limit with this state; nil means that it does not have the
// limit.
func (m *dynamicSet) has(name string, x *dynamicLimit) bool {
	y, ok := m.Limits[name]
	if x == nil || !ok {
		return x == nil && !ok
	}
	a, err := json.Marshal(x)
	b, err2 := json.Marshal(y)
	return err == nil && err2 == nil && slices.Equal(a, b)
}

// Parameters of the exchange between data centers. Chosen: a key is known everywhere well before it
// is used for sealing (sealsAfter), and a share stays far below the megabyte that NATS carries.
const (
	complainEvery = 10 * time.Second // between log lines about an unresponsive data center

	shareEvery  = 5 * time.Second
	shareAgain  = time.Second     // after a failed request
	shareWait   = 3 * time.Second // for an answer, and for the store
	shareSeldom = 6               // nodes other than the first send one request in this many turns
	shareLate   = time.Second     // and wait this long when there are changes
	mostShare   = 512 << 10
	mostPairs   = 64 << 10 // of one room; the API accepts no more (api: maxBody)
	mostVersion = 1 << 53  // one change per millisecond for 285,000 years
)

// taken identifies the state of a record that is in force here.
type taken struct {
	revision uint64
	newest   uint64                 // version of the newest change
	defined  *map[string]Definition // the definitions it was applied to
}

// isAfter reports whether the state in force is newer than a record that was read. A suspended
// former leader of the store may return an old record, and an old amount would be in force again. A
// recreated store counts its revisions from the beginning, but changes made in it have a newer
// version.
func (t *taken) isAfter(revision, newest uint64) bool {
	return revision < t.revision && newest <= t.newest
}
