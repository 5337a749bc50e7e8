package manage

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/headgate/headgate/internal/config"
)

// A Zone groups the rooms of a domain: each zone has its own paths in the API. Rooms in no zone of
// the file belong to DefaultZone.
type Zone struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// DefaultZone is the name of the zone of all hosts that are in no other zone.
const DefaultZone = "default"

// Settings are the settings of a zone.
type Settings struct {
	CrawlerBypass bool `json:"search_engine_crawler_bypass"`
}

func (s *Settings) read(body []byte, all bool) error {
	v, err := parse(body)
	if err != nil {
		return err
	}
	r := &reader{whole: all}
	r.object("", v, []field{truth("search_engine_crawler_bypass", &s.CrawlerBypass, false)})
	return r.err()
}

// derivedID returns an id that is derived from a name, the same in each process.
func derivedID(kind, name string) string {
	sum := sha256.Sum256([]byte("headgate " + kind + " " + name))
	return hex.EncodeToString(sum[:16])
}

// Zones returns the zones of a configuration, with the default one last.
func Zones(cfg *config.Config) []Zone {
	var all []Zone
	for i := range cfg.Zones {
		z := Zone{ID: cfg.Zones[i].ID, Name: cfg.Zones[i].Name}
		if z.ID == "" {
			z.ID = derivedID("zone", z.Name)
		}
		all = append(all, z)
	}
	return append(all, Zone{ID: derivedID("zone", DefaultZone), Name: DefaultZone})
}

// AccountID returns the id of the only account.
func AccountID() string { return derivedID("account", DefaultZone) }

// ZoneOf returns the name of the zone of cfg that a host is in.
func ZoneOf(cfg *config.Config, host string) string { return zoneOf(Zones(cfg), host).Name }

// zoneOf returns the zone of a host: the one with the longest matching domain.
func zoneOf(zones []Zone, host string) Zone {
	best := zones[len(zones)-1]
	most := 0
	for _, z := range zones[:len(zones)-1] {
		if (host == z.Name || strings.HasSuffix(host, "."+z.Name)) && len(z.Name) > most {
			best, most = z, len(z.Name)
		}
	}
	return best
}
