package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
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
	return o.explain(ctx, method, o.Do(ctx, method, path, in, out))
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
