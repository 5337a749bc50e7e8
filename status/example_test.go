package status_test

import (
	"encoding/json"
	"fmt"

	"github.com/headgate/headgate/status"
)

// The answer to GET /v1/rooms of the management API.
func Example() {
	answer := `{"rooms": [{"name": "shop", "status": "queueing", "active_users": 200,
		"waiting_users": 37, "total_active_users": 200, "max_estimated_wait_seconds": 95}]}`
	var all struct{ Rooms []status.Room }
	if err := json.Unmarshal([]byte(answer), &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range all.Rooms {
		fmt.Printf("%s: %s, %d of %d inside, %d wait %.0f s at most\n",
			r.Name, r.Status, r.ActiveUsers, r.TotalActiveUsers, r.WaitingUsers, r.MaxWaitSeconds)
	}
	// Output: shop: queueing, 200 of 200 inside, 37 wait 95 s at most
}
