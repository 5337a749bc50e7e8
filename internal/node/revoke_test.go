package node

import (
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/internal/api"
)

// The list of revoked certificates is accepted completely or not at all.
func FuzzRevoked(f *testing.F) {
	f.Add([]byte(`[{"serial":"00ff","node":"w7","at":"2026-01-02T03:04:05Z"}]`))
	f.Add([]byte(`[{"serial":""}]`))
	f.Add([]byte(`[{"serial":"../x"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var list []api.Revoked
		if json.Unmarshal(b, &list) != nil || checkRevoked(list) != nil {
			return
		}
		for _, serial := range serialsOf(list) {
			if len(serial) == 0 || len(serial) > 40 {
				t.Errorf("%q: a serial number of %d characters", b, len(serial))
			}
		}
	})
}
