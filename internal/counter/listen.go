package counter

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// BeatEvery is how often a node is heard at least.
const BeatEvery = beatEvery

// Listen calls f with each heartbeat of every node, one after the other, until
// stop: for who wants to know of them without being one.
func Listen(bus *store.Bus, f func(Member)) (stop func(), err error) {
	return bus.Hear(beatName, func(msg []byte) {
		x := Member{}
		if err := json.Unmarshal(msg, &x); err != nil || x.Name == "" || len(x.Name) > 64 {
			return
		}
		x.Skew = time.Until(x.Wall)
		f(x)
	})
}
