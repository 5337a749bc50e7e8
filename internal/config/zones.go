package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"

	"go.yaml.in/yaml/v4"
)

// A Zone is a domain whose rooms are created by the management API.
type Zone struct {
	// Name is the domain: the zone contains the rooms of this name and of all names below it.
	// Required.
	Name string

	// ID identifies the zone in the paths of the API: 1 to 64 of A-Z a-z 0-9 _ and -, such as the
	// 32 digits of a Cloudflare zone ID. "" is an ID derived from the name.
	ID string

	// Origin is the origin of rooms that do not set their own. nil is none.
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

// Make builds a room from values by key, as they would be written in the file: texts, lists of
// them, and groups by key. It does not check that the limits it names exist. The error joins one
// *Fault for each mistake; each has the key but no position.
func (c *Config) Make(values map[string]any) (*Room, error) {
	r := defaultRoom()
	d := newDecoder("")
	d.amends = true
	for _, f := range roomFields(&r) {
		if value, ok := values[f.name]; ok {
			d.spots[f.name] = spot{}
			f.read(d, f.name, nodeOf(value))
		}
	}
	r.Limits = union(nil, r.Limits)
	r.derive(d, "")
	checkRoutes(d, &r, "")
	checkSpans(d, &r, "")
	checkLoop(d, c, &r, "")
	if len(d.faults) > 0 {
		return nil, joinFaults(d.faults)
	}
	return &r, nil
}

// nodeOf converts a value to the node that it would be in a file.
func nodeOf(value any) *yaml.Node {
	switch v := value.(type) {
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: flagTag, Value: v}
	case []string:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, x := range v {
			n.Content = append(n.Content, nodeOf(x))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, x := range v {
			n.Content = append(n.Content, nodeOf(x))
		}
		return n
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
			n.Content = append(n.Content, k, nodeOf(v[key]))
		}
		return n
	}
	panic(fmt.Sprintf("a room has no value of type %T", value))
}
