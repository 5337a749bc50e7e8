package manage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Format is the version of the record's format. A headgate that finds a later format does not
// change the record.
const Format = 1

// MaxRecordSize bounds the record; the store allows a little more. The rooms alone may take
// maxRooms of it, about 400 rooms. The rest is history.
const (
	MaxRecordSize = 900 << 10
	maxRooms      = 600 << 10
	mostHistory   = 200      // number of stored changes. Chosen
	mostPages     = 32 << 20 // bytes of all pages, including those of the history. Chosen
	pageKey       = 32       // digits of a page's key, see newID
)

const timeShown = "2006-01-02T15:04:05.999999Z07:00"

// A state is the content of the record.
type state struct {
	Format   int                      `json:"format"`
	Version  int64                    `json:"version"` // of the newest change
	Rooms    []*StoredRoom            `json:"rooms"`
	Settings map[string]*keptSettings `json:"settings"` // by the name of the zone
	Pages    map[string]int           `json:"pages"`    // size of each in bytes, by key
	History  []*Change                `json:"history"`  // oldest first
}

// StoredRoom is a room with its events and rules.
type StoredRoom struct {
	Room
	Events []*Event `json:"events"`
	Rules  []*Rule  `json:"rules"`
}

type keptSettings struct {
	Settings
	Version int64 `json:"version,omitempty"` // of the change that wrote it
}

// A Change is one change in the history, with what is needed to undo it.
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
	Undoes  int64           `json:"undoes,omitempty"` // the version of the change that this one reverts
	Before  json.RawMessage `json:"before"`           // null: did not exist
	After   json.RawMessage `json:"after"`            // null: no longer exists
}

// ErrNewer reports that a later version of headgate wrote the record.
var ErrNewer = errors.New("a newer headgate wrote the rooms; start that version")

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

// PagesOf returns the keys of the pages that a record refers to.
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

// write encodes the state as a record. It drops the oldest history that does not fit.
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
			return nil, one("", CodeTooMany, "delete rooms, events or rules that you do not need",
				"the rooms no longer fit into their record")
		}
		st.History = slices.Delete(st.History, 0, 1+len(st.History)/8)
	}
}

// countPages drops pages that nothing in the record refers to, and returns the total size of the
// others. A JSON string that equals a key, and is not a member's name, counts as a reference.
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
