package config

import (
	"net/url"
	"slices"

	"go.yaml.in/yaml/v4"
)

// A Zone is a domain whose rooms are made by the management API.
type Zone struct {
	// Name is the domain: the zone has its rooms and those of all names below it. Required.
	Name string

	// ID is what addresses of the API call the zone: 1 to 64 of A-Z a-z 0-9 _ and -, such as the
	// 32 digits that Cloudflare calls it. "" is one that follows from the name.
	ID string

	// Origin is what is behind rooms that say no other. nil is none.
	Origin *url.URL
}

func zoneFields(z *Zone) []field {
	return []field{
		required("name", "example.com", raw(&z.Name, cleanHost)),
		one("id", text(&z.ID, cleanName)),
		one("origin", raw(&z.Origin, cleanOrigin)),
	}
}

func readZones(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		for key, item := range d.items(key, n) {
			var z Zone
			d.mapping(key, item, zoneFields(&z))
			for _, twin := range []struct {
				key  string
				same func(Zone) bool
			}{
				{"name", func(x Zone) bool { return z.Name != "" && x.Name == z.Name }},
				{"id", func(x Zone) bool { return z.ID != "" && x.ID == z.ID }},
			} {
				if i := slices.IndexFunc(c.Zones, twin.same); i >= 0 {
					d.fault(key+"."+twin.key, item, wrong("give each zone a name and an id of its own",
						"is that of zones[%d] already", i))
				}
			}
			c.Zones = append(c.Zones, z)
		}
	}
}

// Make builds a room from values by key, as they would stand in the file; the members of
// join_limit go by join_limit.amount and so on. The error joins one *Fault for each mistake,
// with the key alone and no place.
func (c *Config) Make(values map[string]string) (*Room, error) {
	r := defaultRoom()
	d := newDecoder("")
	d.amends = true
	fields := roomFields(&r)
	for _, f := range joinLimitFields(&r.JoinLimit) {
		f.name = "join_limit." + f.name
		fields = append(fields, f)
	}
	for _, f := range fields {
		if value, ok := values[f.name]; ok {
			d.spots[f.name] = spot{}
			f.read(d, f.name, &yaml.Node{Kind: yaml.ScalarNode, Tag: flagTag, Value: value})
		}
	}
	r.derive(d, "")
	checkSpans(d, &r, "")
	checkLoop(d, c, &r, "")
	if len(d.faults) > 0 {
		return nil, joinFaults(d.faults)
	}
	return &r, nil
}
