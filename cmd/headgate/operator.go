package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// These are the environment variables for commands that use a running headgate.
const (
	adminEnv = "HEADGATE_ADMIN"
	tokenEnv = "HEADGATE_TOKEN"

	defaultAdmin = "http://127.0.0.1:8081"
)

const (
	answerWait = 70 * time.Second // longer than the longest reload
	maxAnswer  = 64 << 20         // chosen: 1,000 rooms are 1 MB
	maxToken   = 4 << 10
)

// operatorHelp is the part of the help text that all these commands share.
const operatorHelp = `
  --admin URL        where headgate answers operators; default HEADGATE_ADMIN,
                     else http://127.0.0.1:8081
  --token-file FILE  the token to use; default the one in HEADGATE_TOKEN
`

// An operator is a client of a running headgate.
type operator struct {
	admin   string
	token   string
	command []string // as typed, for messages
	client  http.Client
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
	o := &operator{admin: *admin, command: append(strings.Fields("headgate "+name), args...)}
	o.client.Timeout = answerWait
	// The token must not follow a redirect to another address.
	o.client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	if o.admin == "" {
		o.admin = os.Getenv(adminEnv)
	}
	if o.admin == "" {
		o.admin = defaultAdmin
	}
	u, err := url.Parse(o.admin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, nil, &config.Fault{Key: "--admin", Problem: "is not the URL of a server",
			Hint: "write scheme, host and port, such as " + defaultAdmin}
	}
	o.admin = strings.TrimSuffix(o.admin, "/")
	o.token = os.Getenv(tokenEnv)
	if *file != "" {
		if o.token, err = readToken(*file); err != nil {
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

// A refusal is a problem document from headgate's API.
type refusal struct {
	Status    int             `json:"status"`
	Detail    string          `json:"detail"`
	Code      string          `json:"code"`
	Told      string          `json:"hint"`
	RequestID string          `json:"request_id"`
	Faults    []*config.Fault `json:"faults"`
}

func (r *refusal) Error() string {
	if r.Status >= http.StatusInternalServerError {
		return r.Detail + " (request " + r.RequestID + ")"
	}
	return r.Detail
}

// Hint returns what to do.
func (r *refusal) Hint() string { return r.Told }

// An unreachable is the error for a headgate that cannot be reached.
type unreachable struct {
	admin string
	err   error
}

func (u *unreachable) Error() string {
	err := u.err
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the address is already in the message
	}
	return fmt.Sprintf("no headgate answers at %s: %v", u.admin, err)
}

// Hint returns what to do.
func (u *unreachable) Hint() string {
	return "start headgate run, or name its admin_listen: --admin http://HOST:PORT"
}

// do sends a request and decodes the answer into out, which may be nil.
func (o *operator) do(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, o.admin+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	return o.send(r, out)
}

// send sends a request as the operator, and decodes the answer into out, which may be nil.
func (o *operator) send(r *http.Request, out any) error {
	res, err := o.begin(r)
	if err != nil {
		return err
	}
	return o.read(res, out)
}

// begin sends a request as the operator.
func (o *operator) begin(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", "headgate")
	if o.token != "" {
		r.Header.Set("Authorization", "Bearer "+o.token)
	}
	res, err := o.client.Do(r)
	if err != nil {
		return nil, &unreachable{admin: o.admin, err: err}
	}
	return res, nil
}

// read decodes an answer into out.
func (o *operator) read(res *http.Response, out any) error {
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return &unreachable{admin: o.admin, err: err}
	}
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch {
	case res.StatusCode/100 == 2 && kind == "application/json":
		if out == nil {
			return nil
		}
		return json.Unmarshal(b, out)
	case kind == "application/problem+json":
		p := &refusal{}
		if err := json.Unmarshal(b, p); err == nil {
			return p
		}
	}
	return &unreachable{admin: o.admin,
		err: fmt.Errorf("the answer %s is not one of headgate's operators' address", res.Status)}
}

// fail prints an error and returns the exit code. scope is the scope that the command needs.
func (o *operator) fail(ctx context.Context, stderr io.Writer, err error, scope string) int {
	p, refused := errors.AsType[*refusal](err)
	switch {
	case refused && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden):
		fmt.Fprintf(stderr, "headgate: %s\nhint: run these two, the first on headgate's machine "+
			"as its user:\n", p.Detail)
		fmt.Fprintf(stderr, "  export %s=$(headgate token create --scope %s --data %s)\n",
			tokenEnv, scope, config.ShellWord(o.dataFolder(ctx)))
		fmt.Fprintf(stderr, "  %s\n", o.again())
	case refused && len(p.Faults) > 0:
		config.PrintFaults(stderr, p.Faults)
	default:
		config.Print(stderr, err)
	}
	return exitFailed
}

// dataFolder requests the path of the data folder, which headgate reports to this machine without a
// token.
func (o *operator) dataFolder(ctx context.Context) string {
	bare := *o
	bare.token = ""
	var about struct {
		Data string `json:"data"`
	}
	if err := bare.do(ctx, http.MethodGet, "/v1/status", nil, &about); err != nil || about.Data == "" {
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
