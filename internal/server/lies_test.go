package server

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/folder"
)

// What another data center says is refused or fits, whatever its bytes are.
func FuzzShare(f *testing.F) {
	keys := []keyRecord{{ID: 1, Key: make([]byte, 32), Made: time.Unix(1, 0)}}
	live := sharedLive{Room: "shop", Version: 1, Site: "lhr", Pairs: map[string]string{"message": "x"}}
	good, err := json.Marshal(share{Site: "lhr", Keys: keys, Live: []sharedLive{live}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"site":"lhr","keys":[{"id":0}]}`))
	f.Add([]byte(`{"site":"lhr","keys":null,"live":[null]}{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseShare(b, "lhr")
		if err != nil {
			return
		}
		if x.Site != "lhr" || len(x.Keys) == 0 || len(x.Keys) > mostKeys || len(b) > mostShare {
			t.Errorf("%q: taken as %+v", b, x)
		}
		for _, k := range x.Keys {
			if k.ID == 0 || len(k.Key) != len(folder.SealingKey{}.Key) {
				t.Errorf("%q: key %d of %d bytes", b, k.ID, len(k.Key))
			}
		}
		(&sharedKeys{now: time.Now}).order(x.Keys)
	})
}

// The list of revoked certificates is taken whole or not at all.
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
