package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os/user"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
)

// tokenCommand manages tokens.json.
func tokenCommand(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("token", flag.ContinueOnError)
	var c tokenFlags
	flags.StringVar(&c.scope, "scope", "", "")
	flags.StringVar(&c.name, "name", "", "")
	flags.StringVar(&c.expires, "expires", "", "")
	flags.StringVar(&c.output, "output", "table", "")
	at, words, err := parseFolder(flags, args)
	if err != nil {
		return err
	}
	verb := strings.Join(words, " ")
	switch {
	case verb == "create":
		return c.create(at, stdout, stderr)
	case c.scope+c.name+c.expires != "":
		return usageFault("--scope, --name and --expires go with token create alone",
			"see headgate help token")
	case verb == "list" && c.output == "json":
		return tokensJSON(at.dir, stdout)
	case verb == "list" && c.output == "table":
		return listTokens(at.dir, stdout, stderr)
	case len(words) == 2 && words[0] == "revoke":
		return revokeToken(at.dir, words[1], stdout, stderr)
	}
	return usageFault("token: what shall be done is missing or not known",
		"write headgate token create --scope read, token list, or token revoke ID")
}

type tokenFlags struct{ scope, name, expires, output string }

// folderFlags parses the arguments of a command that works on a data folder. It returns the folder,
// and the arguments that are no flags as words.
func folderFlags(flags *flag.FlagSet, args []string) (dir string, words []string, err error) {
	f, words, err := parseFolder(flags, args)
	return f.dir, words, err
}

// A folder is a data folder, and where the headgate that works in it answers operators.
type folder struct{ dir, admin string }

func parseFolder(flags *flag.FlagSet, args []string) (f folder, words []string, err error) {
	data := flags.String("data", "", "")
	file := flags.String("config", "", "")
	words, rest := splitWords(flags, args)
	if err := config.ParseFlags(flags, rest); err != nil {
		return f, nil, err
	}
	switch {
	case *data != "" && *file != "":
		return f, nil, &config.Fault{Key: "--data", Problem: "cannot stand beside --config",
			Hint: "leave one of them out"}
	case *file != "":
		cfg, err := config.Load(*file)
		if err != nil {
			return f, nil, err
		}
		return folder{cfg.Data, adminURL(cfg.AdminListen)}, words, nil
	}
	return folder{cmp.Or(*data, "./headgate-data"), defaultAdmin}, words, nil
}

// create makes a token and prints it once: only its hash is stored.
func (c *tokenFlags) create(at folder, stdout, stderr io.Writer) error {
	const longest = 64
	scopes, err := api.ParseScopes(c.scope)
	switch {
	case c.scope == "":
		return usageFault("--scope: is missing", "add --scope read or --scope write")
	case err != nil:
		return usageFault(fmt.Sprintf("--scope: %q is not one", c.scope), err.Error())
	case len(c.name) > longest || strings.ContainsFunc(c.name, unicode.IsControl):
		return usageFault("--name: is too long or no plain text",
			"write what the token is for in at most 64 characters")
	}
	t := api.Token{Name: c.name, Scopes: scopes}
	ends := "never expires"
	if c.expires != "" {
		d, err := config.ParseDuration(c.expires)
		if err == nil && d < time.Second {
			err = &config.Fault{Problem: c.expires + " is too short", Hint: "write 12h or 90d"}
		}
		if err != nil {
			f := config.Faults(err)[0]
			return usageFault("--expires: "+f.Problem, f.Hint)
		}
		t.ExpiresAt = time.Now().Add(d).UTC().Truncate(time.Second)
		ends = "expires at " + t.ExpiresAt.Format(time.RFC3339)
	}
	secret, t, err := api.CreateToken(at.dir, t)
	if err != nil {
		return err
	}
	note(at.dir, "token create", &t, stderr)
	fmt.Fprintln(stdout, secret)
	fmt.Fprintf(stderr, "token %s, %s, %s; its hash is in %s\n"+
		"It is shown this once. headgate's own commands take it from %s,\n"+
		"others send it as a header:\n\n"+
		"  export %s=$(headgate token create ...)\n"+
		"  curl -H \"Authorization: Bearer $%s\" %s/v1/rooms\n",
		t.ID, strings.Join(t.Scopes, ", "), ends, filepath.Join(at.dir, "tokens.json"),
		tokenEnv, tokenEnv, tokenEnv, at.admin)
	return nil
}

// note writes to the audit log that a token was created or revoked. The token is valid in any case,
// so an unwritable log is only reported.
func note(dir, what string, t *api.Token, stderr io.Writer) {
	who := "a user of this machine"
	if u, err := user.Current(); err == nil {
		who = "user " + u.Username
	}
	log := api.NewAudit(dir)
	defer log.Close()
	err := log.Append(&api.AuditEntry{At: time.Now().UTC(), Name: who, What: what, Result: "ok",
		After: map[string]string{"token": t.ID, "name": t.Name,
			"scopes": strings.Join(t.Scopes, ",")}})
	if err != nil {
		fmt.Fprintf(stderr, "headgate: warning: %v\n", err)
	}
}

// tokensJSON prints the tokens without their hashes.
func tokensJSON(dir string, stdout io.Writer) error {
	list, err := api.ListTokens(dir)
	if err != nil {
		return err
	}
	type token struct {
		ID      string    `json:"id"`
		Name    string    `json:"name"`
		Scopes  []string  `json:"scopes"`
		Created time.Time `json:"created_at"`
		Expires time.Time `json:"expires_at,omitzero"`
	}
	all := []token{}
	for _, t := range list {
		all = append(all, token{t.ID, t.Name, t.Scopes, t.CreatedAt, t.ExpiresAt})
	}
	return writeJSON(stdout, map[string]any{"tokens": all})
}

func listTokens(dir string, stdout, stderr io.Writer) error {
	list, err := api.ListTokens(dir)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		fmt.Fprintln(stderr, "there are no tokens in", filepath.Join(dir, "tokens.json"))
		return nil
	}
	fmt.Fprintf(stdout, "%-8s  %-20s  %-10s  %-10s  %s\n", "id", "scopes", "created", "expires", "name")
	for _, t := range list {
		ends := "never"
		if !t.ExpiresAt.IsZero() {
			ends = t.ExpiresAt.Format(time.DateOnly)
		}
		if t.IsExpired(time.Now()) {
			ends = "expired"
		}
		fmt.Fprintf(stdout, "%-8s  %-20s  %-10s  %-10s  %s\n", t.ID, strings.Join(t.Scopes, ","),
			t.CreatedAt.Format(time.DateOnly), ends, t.Name)
	}
	return nil
}

func revokeToken(dir, id string, stdout, stderr io.Writer) error {
	t, ok, err := api.RevokeToken(dir, id)
	switch {
	case err != nil:
		return err
	case !ok:
		return &hint.Error{Do: "headgate token list shows the ids",
			Text: fmt.Sprintf("there is no token %q in %s", id, filepath.Join(dir, "tokens.json"))}
	}
	note(dir, "token revoke", &t, stderr)
	fmt.Fprintf(stdout, "token %s is revoked\n", t.ID)
	return nil
}
