package manage

import (
	"encoding/json"
	"strings"

	"github.com/headgate/headgate/internal/config"
)

// Live returns the operation that sets keys of the file to their values in now. A live change of a
// room of the store is an ordinary change.
func (b *Catalog) Live(id string, now *config.Room, keys []string) (*Op, error) {
	values := map[string]any{
		"total_active_users": now.TotalActiveUsers, "new_users_per_minute": now.NewUsersPerMinute,
		"session_duration": int64(now.SessionDuration.Seconds()), "queue_all": now.QueueAll,
		"method": now.Method,
		"closed": now.Closed, "suspended": now.Suspended, "shadow": now.Shadow, "message": now.Message,
		"hard_end": int64(now.HardEnd.Seconds()), "max_waiting": now.MaxWaiting,
		"hold": int64(now.Hold.Seconds()), "hold_phone": int64(now.HoldPhone.Seconds()),
	}
	body, own := map[string]any{}, map[string]any{}
	for _, key := range keys {
		if member, ok := strings.CutPrefix(pointerOf(key), "/headgate/"); ok {
			own[member] = values[key]
			continue
		}
		body[strings.TrimPrefix(pointerOf(key), "/")] = values[key]
	}
	if len(own) > 0 {
		body["headgate"] = own
	}
	text, err := json.Marshal(body)
	return &Op{What: Rooms, Verb: Edit, Zone: zoneOf(b.zones, now.Host).Name, Room: id, Body: text}, err
}
