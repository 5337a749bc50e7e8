package setup

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/schema"
)

// Answers are what only the operator knows, as texts of the file.
type Answers struct {
	Origin  string
	Host    string // "" is any
	Active  string // a number, or auto
	New     string // a number, or auto
	Session string
}

// A Question is one of the answers, with the flag that gives it.
type Question struct {
	Flag, Text, Default string
	Answer              *string
	key                 string // in a room
}

// auto is the answer of people who do not know a limit, and the bounds that it then has.
const (
	auto       = "auto"
	autoActive = "{auto: true, min: 50, max: 5000}"
	autoNew    = "{auto: true, max: 3000}"
)

// Questions returns the five questions, in their order.
func (a *Answers) Questions() []Question {
	return []Question{
		{"origin", "Where is your site now? A URL, such as http://127.0.0.1:3000", "", &a.Origin, "origin"},
		{"host", "Which host name do visitors use, such as shop.example.com? Empty: any", "", &a.Host, "host"},
		{"total-active-users", "How many visitors can be inside at once? A number; auto: headgate finds it",
			auto, &a.Active, "total_active_users"},
		{"new-users-per-minute", "How many new visitors can come in each minute? A number, or auto",
			cmp.Or(a.Active, auto), &a.New, "new_users_per_minute"},
		{"session-duration", "How long does a visit last after its last page, such as 5m?", "5m", &a.Session,
			"session_duration"},
	}
}

// Check returns what is wrong with an answer, or nil. The reader of the file decides.
func (a *Answers) Check(q *Question) *config.Fault {
	probe := Answers{Origin: "http://127.0.0.1:3000", Active: "200", New: "200", Session: "5m"}
	for _, p := range probe.Questions() {
		if p.Flag == q.Flag {
			*p.Answer = *q.Answer
		}
	}
	if q.Flag == "new-users-per-minute" { // auto needs both
		probe.Active = a.Active
	}
	_, err := config.Parse("headgate.yaml", []byte(probe.Text("headgate.yaml", nil)))
	for _, f := range config.Faults(err) {
		if strings.HasPrefix(f.Key, "rooms[0]."+q.key) {
			return &config.Fault{Key: "--" + q.Flag, Problem: f.Problem, Hint: f.Hint}
		}
	}
	return nil
}

// room returns a name for the room: shop of www.shop.example.com.
func (a *Answers) room() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(config.CleanHost(a.Host), "www."), ".")
	if name == "" || strings.Trim(name, "0123456789") == "" || strings.ContainsAny(name, ":") {
		return "main"
	}
	return name
}

// Text returns what to write to the file. A nil site was not looked at.
func (a *Answers) Text(file string, site *Findings) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(schema.Line)
	line("# Made by headgate init. Change it, then: headgate check --config %s", config.ShellWord(file))
	line("# All keys: docs/configuration.md, or your editor.")
	line("")
	line("listen: :8080                 # visitors come here")
	line("admin_listen: 127.0.0.1:8081  # dashboard, API and metrics: keep it private")
	line("data: ./headgate-data         # sessions and places in the line survive a restart")
	line("")
	line("rooms:")
	line("  - name: %s", quoteText(a.room()))
	line("    # Your site. %s", seen(site))
	line("    origin: %s", quoteText(a.Origin))
	if a.Host != "" {
		line("    host: %s", quoteText(a.Host))
	}
	line("")
	line("    # How many visitors may be inside at once, and how many may enter in any 60 s. The others wait.")
	if a.Active == auto {
		line("    # auto: headgate finds the number from how the site answers. It starts with min.")
	}
	line("    total_active_users: %s", orAuto(a.Active, autoActive))
	line("    new_users_per_minute: %s", orAuto(a.New, autoNew))
	line("")
	line("    # A visitor without a request for this long has left, and the next one comes in.")
	line("    session_duration: %s", quoteText(a.Session))
	if site != nil {
		site.write(line)
	}
	return b.String()
}

func seen(site *Findings) string {
	if site == nil || site.Err != nil {
		return "It did not answer when this file was made."
	}
	return fmt.Sprintf("It answered %d in %v when this file was made.", site.Status, round(site.Median))
}

// write adds the keys that the look proposes.
func (s *Findings) write(line func(string, ...any)) {
	if len(s.Excluded()) > 0 {
		line("")
		line("    # These requests do not wait and are not counted. Take out what is slow or costs you something.")
		line("    exclude:")
		line("      paths:")
		for _, kind := range []Kind{Asset, Webhook, Probe} {
			for _, p := range s.Paths[kind] {
				line("        - %s  # %s", p.Path, kind.Reason())
			}
		}
	}
	if all := s.Paths[Checkout]; len(all) > 0 {
		line("")
		line("    # A session does not end while its visitor pays.")
		line("    checkout:")
		line("      grace_paths:")
		for _, p := range bothForms(all) {
			line("        - %s", p)
		}
	}
}

// bothForms returns each path and all below it.
func bothForms(paths []Path) (all []string) {
	for _, p := range paths {
		bare := strings.TrimSuffix(p.Path, "/")
		all = append(all, bare, bare+"/")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Reason says why requests of a kind pass, or stay.
func (k Kind) Reason() string {
	switch k {
	case Asset:
		return "styles, scripts, pictures: parts of pages"
	case Webhook:
		return "other machines call it, and cannot wait"
	case Probe:
		return "monitors call it"
	case API:
		return "pages call it, for visitors inside"
	}
	return "a session does not end while its visitor pays"
}

func orAuto(answer, group string) string {
	if answer == auto {
		return group
	}
	return quoteText(answer)
}

// quoteText writes a value as YAML: plain if it is a number or a word.
func quoteText(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-./:_", r)
	}) && !strings.HasSuffix(s, ":") && !strings.HasPrefix(s, "-") && !slices.Contains(
		[]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, s)
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(strings.Map(printable, s), "'", "''") + "'"
}

// printable drops what a line of YAML cannot have.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}

// URL returns the origin as a URL. It is valid if Check says so.
func (a *Answers) URL() (*url.URL, error) { return url.Parse(a.Origin) }
