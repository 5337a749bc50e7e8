package schema_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/schema"
)

func TestMain(m *testing.M) {
	flag.Bool("rewrite", false, "write descriptions.txt and testdata anew")
	os.Exit(m.Run())
}

// compiled returns the schema as a validator of others reads it. It checks the schema against that of JSON
// Schema first.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var text bytes.Buffer
	if err := config.Schema().Write(&text); err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(&text)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schema.File, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(schema.File)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// value returns a file as editors read it: dates are texts.
func value(t *testing.T, text []byte) any {
	t.Helper()
	var doc yaml.Node
	if yaml.Unmarshal(text, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	return plain(doc.Content[0], 0)
}

func plain(n *yaml.Node, depth int) any {
	if depth++; depth > 40 { // an alias may name what it is in
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return plain(n.Alias, depth)
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plain(n.Content[i+1], depth)
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, plain(item, depth))
		}
		return list
	}
	var v any
	if n.Tag == "!!timestamp" || n.Decode(&v) != nil {
		return n.Value
	}
	return v
}

// TestSchemaAgreesWithCheck compares the validator with headgate check, for each file of the tests of package
// config: the schema accepts every good file. The bad files that it accepts are those in testdata, whose
// mistakes a schema cannot express.
func TestSchemaAgreesWithCheck(t *testing.T) {
	s := compiled(t)
	files, err := filepath.Glob("../config/testdata/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	var beyond strings.Builder
	refused := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, checked := config.Load(file)
		switch refusal := s.Validate(value(t, text)); {
		case checked == nil && refusal != nil:
			t.Errorf("%s: check accepts it, and the schema refuses it: %v", file, refusal)
		case checked != nil && refusal == nil:
			beyond.WriteString(filepath.Base(file) + "\n")
		case refusal != nil:
			refused++
		}
	}
	if refused < 40 {
		t.Errorf("the schema refuses %d bad files", refused)
	}
	same(t, "testdata/beyond.txt", beyond.String())
}

// TestSchemaAcceptsTheExamplesOfTheDocuments takes each example that is a whole configuration.
func TestSchemaAcceptsTheExamplesOfTheDocuments(t *testing.T) {
	s, tried := compiled(t), 0
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for file, text := range documents(t) {
		for _, m := range block.FindAllSubmatch(text, -1) {
			if _, err := config.Parse("headgate.yaml", m[1]); err != nil {
				continue // a part of a file, or one that names files
			}
			tried++
			if err := s.Validate(value(t, m[1])); err != nil {
				t.Errorf("%s: %v\n%s", file, err, m[1])
			}
		}
	}
	if tried < 20 {
		t.Errorf("found %d configurations", tried)
	}
}

// A default that its own key would refuse is a mistake of the schema.
func TestDefaultsAreValid(t *testing.T) {
	found := 0
	config.Schema().Walk(func(path string, key *schema.Schema) {
		if key.Default == nil {
			return
		}
		found++
		var text bytes.Buffer
		if err := key.Write(&text); err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(&text)
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(path, doc); err != nil {
			t.Fatal(err)
		}
		one, err := c.Compile(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := one.Validate(doc.(map[string]any)["default"]); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	})
	if found < 80 {
		t.Errorf("found %d defaults", found)
	}
}

// TestDescriptionsAreThoseOfTheDocuments takes the descriptions of all keys from the tables of the documents.
// "go test" with -rewrite writes descriptions.txt.
func TestDescriptionsAreThoseOfTheDocuments(t *testing.T) {
	var paths []string
	config.Schema().Walk(func(path string, _ *schema.Schema) { paths = append(paths, path) })
	rows := described(t, paths)
	var text strings.Builder
	for _, path := range paths {
		from := regexp.MustCompile(`^turnstile\.\w+\.`).ReplaceAllString(path, "rooms[].challenge.")
		from = strings.Replace(from, "plans.jwt.", "rooms[].identity.jwt.", 1)
		from = regexp.MustCompile(`^(limits\[\]\.amount|queues\[\]\.rate)\.`).
			ReplaceAllString(from, "rooms[].total_active_users.")
		from = strings.Replace(from, "limits[].origin_target.", "rooms[].origin_target.", 1)
		switch {
		case rows[path] != "":
			text.WriteString(path + "\t" + rows[path] + "\n")
		case rows[from] != "":
			text.WriteString(path + "\t" + rows[from] + "\n")
		case strings.Contains(path, ".translations.") || hasBelow(rows, path):
		case regexp.MustCompile(`\b` + name(path) + `\b`).MatchString(rows[parent(path)]):
			text.WriteString(path + "\t" + rows[parent(path)] + "\n") // the row of the group names it
		default:
			t.Errorf("no table of the documents has a row for the key %s", path)
		}
	}
	same(t, "descriptions.txt", text.String())
}

// name and parent take a path apart.
func name(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func parent(path string) string {
	return strings.TrimSuffix(path[:max(0, strings.LastIndexByte(path, '.'))], "[]")
}

// hasBelow reports whether a group has no row of its own, and its keys have.
func hasBelow(rows map[string]string, path string) bool {
	for key := range rows {
		if strings.HasPrefix(key, path+".") {
			return true
		}
	}
	return false
}

// described returns the text of each key that has a row in a table whose first title begins with "key".
func described(t *testing.T, paths []string) map[string]string {
	t.Helper()
	title := regexp.MustCompile("^\\| key(?: of (?:an? )?`?([a-z_. \\[\\]]+)`?[^|]*)? \\|")
	found := map[string]string{}
	for _, page := range documents(t) {
		group, inside := "", false
		for line := range strings.Lines(string(page)) {
			if m := title.FindStringSubmatch(line); m != nil {
				group, inside = groupOf(m[1], paths), true
				continue
			}
			if inside = inside && strings.HasPrefix(line, "|"); !inside || strings.HasPrefix(line, "|---") {
				continue
			}
			line = strings.ReplaceAll(line, "| |", "|  |") // an empty cell
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			text := plainText(cells[len(cells)-1])
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
				found[strings.TrimPrefix(group+"."+strings.TrimPrefix(m[1], group+"."), ".")] = text
			}
		}
	}
	return found
}

// groupOf returns the path of the group that a title names: the shortest one.
func groupOf(name string, paths []string) string {
	if name == "" {
		return ""
	}
	name, paths = strings.ReplaceAll(strings.TrimSuffix(name, "[]"), " ", ""), slices.Clone(paths)
	depth := func(path string) int { return strings.Count(path, ".") }
	slices.SortStableFunc(paths, func(a, b string) int { return depth(a) - depth(b) })
	for _, path := range paths {
		for _, end := range []string{name, name + "s"} {
			if path != end && !strings.HasSuffix(path, "."+end) {
				continue
			}
			for _, below := range []string{"[].", ".*.", "."} {
				inside := func(p string) bool { return strings.HasPrefix(p, path+below) }
				if slices.ContainsFunc(paths, inside) {
					return path + strings.TrimSuffix(below, ".")
				}
			}
		}
	}
	return name
}

// plainText takes the marks of Markdown out.
func plainText(s string) string {
	s = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(s, "$1")
	s = strings.TrimSuffix(s, ": see below")
	return strings.TrimSpace(strings.NewReplacer("`", "", "**", "", `\|`, "|").Replace(s))
}

func documents(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		if all[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// same compares a file with what it should be, and writes it with -rewrite.
func same(t *testing.T, file, want string) {
	t.Helper()
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s (-want +got): go test ./internal/schema -args -rewrite\n%s", file, diff)
	}
}
