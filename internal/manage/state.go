package manage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Format is that of the record. A headgate that reads a later one leaves it alone.
const Format = 1

// MaxRecord bounds the record; what the store carries is a little more. The rooms alone have up
// to MaxRooms of it, about 400 rooms, the rest is history.
const (
	MaxRecordSize = 900 << 10
	maxRooms      = 600 << 10
	mostHistory   = 200      // changes that are kept. Chosen
	mostPages     = 32 << 20 // bytes of all pages, those of the history among them. Chosen
	pageKey       = 32       // digits of the key of a page, see newID
)

const timeShown = "2006-01-02T15:04:05.999999Z07:00"

// A state is what the record holds.
type state struct {
	Format   int                      `json:"format"`
	Version  int64                    `json:"version"` // of the newest change
	Rooms    []*StoredRoom            `json:"rooms"`
	Settings map[string]*keptSettings `json:"settings"` // by the name of the zone
	Pages    map[string]int           `json:"pages"`    // bytes of each, by its key
	History  []*Change                `json:"history"`  // the newest last
}

// Kept is a room with all that belongs to it.
type StoredRoom struct {
	Room
	Events []*Event `json:"events"`
	Rules  []*Rule  `json:"rules"`
}

type keptSettings struct {
	Settings
	Version int64 `json:"version,omitempty"` // of the change that wrote them
}

// A Change is one that was made, and what it takes to undo it.
type Change struct {
	Version int64           `json:"version"`
	At      time.Time       `json:"at"`
	By      string          `json:"by"`
	What    string          `json:"what"` // room, event, rules or settings
	Verb    string          `json:"verb"` // create, change or delete
	Zone    string          `json:"zone"` // its name
	Room    string          `json:"room"` // its name; "" for settings
	RoomID  string          `json:"room_id,omitempty"`
	Target  string          `json:"target,omitempty"` // id of the event
	Undoes  int64           `json:"undoes,omitempty"` // the change that this one took back
	Before  json.RawMessage `json:"before"`           // null: there was none
	After   json.RawMessage `json:"after"`            // null: there is none any more
}

// ErrNewer: a later headgate wrote the record.
var ErrNewer = errors.New("the rooms were written by a later headgate: start that one")

func readState(record []byte) (*state, error) {
	st := &state{Format: Format, Settings: map[string]*keptSettings{}, Pages: map[string]int{}}
	if len(record) == 0 {
		return st, nil
	}
	if err := json.Unmarshal(record, st); err != nil {
		return nil, fmt.Errorf("the record of the rooms is damaged: %w", err)
	}
	if st.Format != Format {
		return nil, ErrNewer
	}
	return st, nil
}

// PagesOf are the keys of the pages that a record refers to.
func PagesOf(record []byte) ([]string, error) {
	st, err := readState(record)
	if err != nil {
		return nil, err
	}
	var keys []string
	for k := range st.Pages {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys, nil
}

// write is the record of a state. History that does not fit is forgotten, the oldest first.
func (st *state) write() ([]byte, error) {
	for {
		record, err := json.Marshal(st)
		if err != nil {
			return nil, err
		}
		sum, dropped := st.countPages(record)
		switch {
		case dropped:
			continue
		case len(record) <= MaxRecordSize && sum <= mostPages && len(st.History) <= mostHistory &&
			(len(record) <= maxRooms || len(st.History) > 1):
			return record, nil
		case len(st.History) <= 1:
			return nil, one("", CodeTooMany, "delete rooms, events or rules that are not needed",
				"the rooms do not fit into their record any more")
		}
		st.History = slices.Delete(st.History, 0, 1+len(st.History)/8)
	}
}

// countPages forgets pages that nothing in the record refers to, and counts the bytes of the others.
// A text that is one of their keys, and no name of a member, refers to it.
func (st *state) countPages(record []byte) (sum int, dropped bool) {
	used := map[string]bool{}
	for rest := record; ; {
		_, after, found := bytes.Cut(rest, []byte(`"`))
		if !found {
			break
		}
		rest = after
		if len(after) > pageKey+1 && after[pageKey] == '"' && after[pageKey+1] != ':' {
			if st.Pages[string(after[:pageKey])] > 0 {
				used[string(after[:pageKey])] = true
			}
		}
	}
	for key, n := range st.Pages {
		if !used[key] {
			delete(st.Pages, key)
			dropped = true
			continue
		}
		sum += n
	}
	return sum, dropped
}
