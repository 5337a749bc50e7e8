package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/adminclient"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
)

// These are the environment variables for commands that use a running headgate.
const (
	adminEnv = "HEADGATE_ADMIN"
	tokenEnv = "HEADGATE_TOKEN"

	defaultAdmin = "http://127.0.0.1:8081"
)

const maxToken = 4 << 10

// An operator is a client of a running headgate.
type operator struct {
	adminclient.Client
	command []string // as typed, for messages
	scope   string   // what the token must allow; "": read, or write for what changes something
}

// operatorFlags parses the arguments of a command that uses a running headgate. It returns the
// arguments that are no flags as words.
func operatorFlags(flags *flag.FlagSet, name string, args []string) (*operator, []string, error) {
	admin := flags.String("admin", "", "")
	file := flags.String("token-file", "", "")
	words, rest := splitWords(flags, args)
	if err := config.ParseFlags(flags, rest); err != nil {
		return nil, nil, err
	}
	o := &operator{command: append(strings.Fields("headgate "+name), args...)}
	o.URL = cmp.Or(*admin, os.Getenv(adminEnv), defaultAdmin)
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, nil, &config.Fault{Key: "--admin", Problem: "is not the URL of a server",
			Hint: "write scheme, host and port, such as " + defaultAdmin}
	}
	o.URL = strings.TrimSuffix(o.URL, "/")
	o.Token = os.Getenv(tokenEnv)
	if *file != "" {
		if o.Token, err = readToken(*file); err != nil {
			return nil, nil, err
		}
	}
	return o, words, nil
}

func readToken(file string) (string, error) {
	fault := &config.Fault{Key: "--token-file", Hint: "name a file that holds a token alone"}
	f, err := os.Open(file)
	if err != nil {
		fault.Problem = err.Error()
		return "", fault
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		fault.Problem = err.Error()
		return "", fault
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsAny(token, " \r\n") {
		fault.Problem = file + " does not hold one token"
		return "", fault
	}
	return token, nil
}

// splitWords separates words from flags in any order. Everything after -- is a word.
func splitWords(flags *flag.FlagSet, args []string) (words, rest []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			return append(words, args[i+1:]...), rest
		}
		if len(a) < 2 || a[0] != '-' {
			words = append(words, a)
			continue
		}
		rest = append(rest, a)
		f := flags.Lookup(strings.TrimLeft(a, "-"))
		if f == nil || strings.Contains(a, "=") {
			continue
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			continue
		}
		if i++; i < len(args) {
			rest = append(rest, args[i])
		}
	}
	return words, rest
}

// do sends a request and decodes the answer into out, which may be nil.
func (o *operator) do(ctx context.Context, method, path string, in, out any) error {
	answers, ok := ctx.Value(answersKey{}).(*[]json.RawMessage)
	if !ok {
		return o.explain(ctx, method, o.Do(ctx, method, path, in, out))
	}
	var raw json.RawMessage
	if err := o.Do(ctx, method, path, in, &raw); err != nil {
		return o.explain(ctx, method, err)
	}
	*answers = append(*answers, raw)
	return json.Unmarshal(raw, out)
}

// answersKey is the key of a context that collects the answers of the API, for --output json.
type answersKey struct{}

// tables returns the commands that show what the API answers, and the words after which they do; nil: always.
func tables() map[string][]string {
	return map[string][]string{
		"status": nil, "ticket": nil, "analytics": nil, "room": {"history"}, "codes": {"revoked"},
		"limit": {"list", "keys", "key"}, "holder": {"list", "show"}, "webhook": {"list"}, "key": {"list"},
		"queue": {"status", "job", "schedules", "tenant", "dead"}, "cluster": {"status"},
	}
}

// ownJSON returns the commands that make JSON by themselves, with the arguments for it.
func ownJSON() map[string][]string {
	return map[string][]string{"doctor": {"--json"}, "version": {"--json"}, "simulate": {"--json"},
		"check": {"--format", "json"}}
}

// runWithOutput runs a command. With --output json, one that shows a table prints the answers of the API.
func (c *command) runWithOutput(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	words, shows := tables()[c.name]
	own, makes := ownJSON()[c.name]
	verb := func(arg string) bool { return slices.Contains(words, arg) }
	rest, format, given := cutOutput(args)
	switch {
	case !given || !makes && (!shows || words != nil && !slices.ContainsFunc(args, verb)):
		return c.run(ctx, args, stdout, stderr)
	case format == "table":
		return c.run(ctx, rest, stdout, stderr)
	case format != "json":
		return &config.Fault{Key: "--output", Problem: fmt.Sprintf("%q is no format", format),
			Hint: "write table or json"}
	case makes:
		return c.run(ctx, append(rest, own...), stdout, stderr)
	case slices.Contains(rest, "--watch"):
		return usageFault("--output: json cannot stand beside --watch", "leave one of them out")
	}
	var answers []json.RawMessage
	if err := c.run(context.WithValue(ctx, answersKey{}, &answers), rest, io.Discard, stderr); err != nil {
		return err
	}
	for _, a := range answers { // several are pages
		if err := writeJSON(stdout, a); err != nil {
			return err
		}
	}
	return nil
}

// cutOutput takes --output FORMAT out of arguments.
func cutOutput(args []string) (rest []string, format string, given bool) {
	for i, a := range args {
		name, value, glued := strings.Cut(a, "=")
		switch {
		case a == "--":
			return args, "", false
		case name != "--output" && name != "-output" || !glued && i+1 == len(args):
			continue
		case !glued:
			value = args[i+1]
			return slices.Concat(args[:i], args[i+2:]), value, true
		}
		return slices.Concat(args[:i], args[i+1:]), value, true
	}
	return args, "", false
}

// stream copies an answer of any length.
func (o *operator) stream(ctx context.Context, path string, to io.Writer) error {
	return o.explain(ctx, http.MethodGet, o.Copy(ctx, path, to))
}

// explain adds to a refused token how to make a better one.
func (o *operator) explain(ctx context.Context, method string, err error) error {
	p, ok := errors.AsType[*adminclient.Refusal](err)
	if !ok || p.Status != http.StatusUnauthorized && p.Status != http.StatusForbidden {
		return err
	}
	scope := "write"
	if method == http.MethodGet {
		scope = "read"
	}
	return &hint.Error{Text: p.Detail, Do: fmt.Sprintf("run these two, the first on headgate's machine "+
		"as its user:\n  export %s=$(headgate token create --scope %s --data %s)\n  %s",
		tokenEnv, cmp.Or(o.scope, scope), config.ShellWord(o.dataFolder(ctx)), o.again())}
}

// dataFolder requests the path of the data folder, which headgate reports to this machine without a
// token.
func (o *operator) dataFolder(ctx context.Context) string {
	bare := adminclient.Client{URL: o.URL}
	var about struct {
		Data string `json:"data"`
	}
	if err := bare.Do(ctx, http.MethodGet, "/v1/status", nil, &about); err != nil || about.Data == "" {
		return "DATA"
	}
	return about.Data
}

// again returns the command as typed, for a shell, with the token from the environment.
func (o *operator) again() string {
	var words []string
	for i := 0; i < len(o.command); i++ {
		name, _, glued := strings.Cut(strings.TrimLeft(o.command[i], "-"), "=")
		if name == "token-file" && strings.HasPrefix(o.command[i], "-") {
			if !glued {
				i++
			}
			continue
		}
		words = append(words, config.ShellWord(o.command[i]))
	}
	return strings.Join(words, " ")
}
