package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/suggest"
)

// Load reads and checks the file at path. See [Parse] for its errors. A file that cannot be read is
// a *Fault too, which unwraps to the reason.
func Load(path string) (*Config, error) {
	return load(path, nil)
}

// Parse checks b and returns the configuration in it. Messages refer to the file by name. The error
// joins one *Fault for each mistake; [Faults] takes it apart.
func Parse(name string, b []byte) (*Config, error) {
	return parse(name, b, nil)
}

// load is Load with flags that override keys of the file.
func load(path string, over []flagValue) (*Config, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return parse(path, b, over)
}

// parse is Parse with flags that override keys of the file.
func parse(name string, b []byte, over []flagValue) (*Config, error) {
	d := newDecoder(name, homeOf)
	c := defaultConfig()
	c.File, c.over = name, over
	if root := d.Load(b); root != nil {
		d.mapping("", root, configFields(&c))
		d.override(configFields(&c), "", over)
	}
	return d.finish(&c)
}

// readFile reads at most one byte more than maxFile, which parse then rejects: path may be a pipe
// or a device without an end.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// unreadable explains why a file could not be read.
func unreadable(path string, err error) *Fault {
	f := &Fault{File: path, cause: err}
	switch {
	case path == "":
		f.Key = "--config"
		f.Problem, f.Hint = "names no file", "write --config headgate.yaml"
	case errors.Is(err, fs.ErrNotExist):
		f.Problem = "there is no such file"
		f.Hint = "name the configuration with --config FILE"
	case errors.Is(err, fs.ErrPermission):
		f.Problem = "may not be read by this user"
		f.Hint = "run headgate as a user who may read it, or change its permissions"
	default:
		// The path is in f.File already: do not repeat it.
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		f.Problem = fmt.Sprintf("cannot be read: %v", err)
		f.Hint = "name a plain file with --config FILE"
	}
	return f
}

func defaultConfig() Config {
	return Config{
		Listen:      ":8080",
		AdminListen: "127.0.0.1:8081",
		Data:        "./headgate-data",
		Analytics:   defaultAnalytics(),

		MaxConnections: 256,
		BodyTimeout:    30 * time.Second,
		BodyRate:       1024,
		WriteTimeout:   time.Minute,
	}
}

// mainRoom is the name of the room of headgate run without a file.
const mainRoom = "main"

// mainTitle is the title of that room: visitors need not see the name "main".
const mainTitle = "Waiting room"

// ParseRun parses the arguments of headgate run: either --config, perhaps with flags of the
// process, or the flags of one room. It writes warnings to stderr, since every caller would do the
// same; they stay in the Config too. The error is flag.ErrHelp, or consists of *Fault.
func ParseRun(args []string, stderr io.Writer) (*Config, error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	file := &once{}
	flags.Var(file, "config", "")
	process := []string{"listen", "admin_listen", "data"}
	room := []string{"title", "host", "path", "origin",
		"total_active_users", "new_users_per_minute", "session_duration"}
	texts := map[string]*once{}
	for _, key := range slices.Concat(process, room) {
		texts[key] = &once{}
		flags.Var(texts[key], strings.TrimPrefix(flagName(key), "--"), "")
	}
	if err := ParseFlags(flags, args); err != nil {
		return nil, err
	}
	over, ofRoom := given(process, texts), given(room, texts)
	var c *Config
	var err error
	switch {
	case file.set && len(ofRoom) > 0:
		return nil, eitherFault(ofRoom)
	case file.set:
		c, err = load(file.text, over)
	case len(over)+len(ofRoom) == 0:
		return nil, &Fault{Problem: "there is nothing to run", Hint: "name a file with " +
			"--config headgate.yaml, or an origin with --origin http://127.0.0.1:3000 " +
			"--total-active-users 200 --new-users-per-minute 200"}
	default:
		c, err = fromFlags(over, ofRoom)
	}
	if err != nil {
		return nil, err
	}
	for i := range c.Warnings {
		fmt.Fprintf(stderr, "headgate: warning: %v\nhint: %s\n",
			&c.Warnings[i], c.Warnings[i].Hint)
	}
	return c, nil
}

// fromFlags makes a Config with one room.
func fromFlags(process, room []flagValue) (*Config, error) {
	d := newDecoder("", homeOf)
	d.flags = true
	c := defaultConfig()
	d.override(configFields(&c), "", process)

	r := defaultRoom()
	r.Name, r.Title = mainRoom, mainTitle
	fields := roomFields(&r)
	d.override(fields, "rooms[0]", room)
	for _, f := range fields {
		_, ok := d.spots[under("rooms[0]", f.name)]
		if !ok && f.name != "name" {
			d.missing(f, "rooms[0]", &yaml.Node{})
		}
	}
	c.Rooms = []Room{r}
	return d.finish(&c)
}

// eitherFault reports, for each flag of a room, that its value belongs in the file.
func eitherFault(ofRoom []flagValue) error {
	var faults []*Fault
	for _, v := range ofRoom {
		faults = append(faults, &Fault{Key: flagName(v.key),
			Problem: "cannot stand beside --config",
			Hint:    "set " + v.key + " for a room in the file, or leave --config out"})
	}
	return joinFaults(faults)
}

// given returns the flags that were given, in the order of keys.
func given(keys []string, texts map[string]*once) []flagValue {
	var all []flagValue
	for _, k := range keys {
		if texts[k].set {
			all = append(all, flagValue{key: k, text: texts[k].text})
		}
	}
	return all
}

// A once is a flag.Value that may be set only once.
type once struct {
	text string
	set  bool
}

func (o *once) String() string { return o.text }

func (o *once) Set(s string) error {
	if o.set {
		return errors.New(twice)
	}
	o.text, o.set = s, true
	return nil
}

// ParseFlags parses args into flags. Arguments that are not flags are faults. The error is
// flag.ErrHelp or consists of one *Fault for each mistake. Nothing is printed.
func ParseFlags(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	var known []string
	flags.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })

	var faults []*Fault
	for {
		err := flags.Parse(args)
		rest := flags.Args()
		switch {
		case errors.Is(err, flag.ErrHelp):
			return err
		case err == nil && len(rest) == 0:
			return joinFaults(faults)
		case err == nil:
			faults = append(faults, strayFault(rest[0], known))
			args = rest[1:]
			continue
		}
		faults = append(faults, flagFault(err, args[:len(args)-len(rest)], known))
		// A flag that could not be parsed stays in rest, and its value may follow.
		if strings.HasPrefix(err.Error(), "bad flag syntax") {
			rest = rest[1:]
		}
		for len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			rest = rest[1:]
		}
		args = rest
	}
}

// strayFault reports an argument that belongs to no flag.
func strayFault(arg string, known []string) *Fault {
	f := &Fault{Problem: "unexpected argument " + quote(arg),
		Hint: "every argument is a flag that begins with two dashes"}
	if strings.HasSuffix(arg, "ml") && slices.Contains(known, "config") {
		f.Hint = "did you mean --config " + arg + "?"
	} else if strings.Contains(arg, "://") && slices.Contains(known, "origin") {
		f.Hint = "did you mean --origin " + arg + "?"
	}
	return f
}

// typed returns a flag as it was last written in args: with one dash or with two.
func typed(args []string, name string) string {
	for _, arg := range slices.Backward(args) {
		if arg, _, _ = strings.Cut(arg, "="); arg == "-"+name || arg == "--"+name {
			return arg
		}
	}
	return "--" + name
}

// twice is the problem of a flag that is given more than once.
const twice = "is given more than once"

// flagFault turns an error of package flag into a Fault. The package has no error types, and the
// error concerns the last of args.
func flagFault(err error, args, known []string) *Fault {
	s := err.Error()
	if name, ok := strings.CutPrefix(s, "flag provided but not defined: -"); ok {
		f := &Fault{Key: typed(args, name), Problem: "there is no such flag"}
		if near := suggest.Nearest(name, known); near != "" {
			f.Hint = "did you mean --" + near + "?"
		} else {
			f.Hint = "the flags are --" + strings.Join(known, ", --")
		}
		return f
	}
	if name, ok := strings.CutPrefix(s, "flag needs an argument: -"); ok {
		return &Fault{Key: typed(args, name), Problem: "has no value", Hint: "write --" + name + " VALUE"}
	}
	if i := strings.LastIndex(s, " for flag -"); i >= 0 {
		if name, problem, ok := strings.Cut(s[i+len(" for flag -"):], ": "); ok {
			f := &Fault{Key: typed(args, name), Problem: problem, Hint: "give it once"}
			if problem != twice {
				f.Hint = "write --" + name + " and another value: headgate help COMMAND shows an example"
			}
			value, err := strconv.Unquote(strings.TrimPrefix(s[:i], "invalid value "))
			if problem == "parse error" && err == nil { // of a number or a duration
				f.Problem = quote(value) + " cannot be read"
			}
			return f
		}
	}
	if s, ok := strings.CutPrefix(s, "invalid boolean value "); ok {
		if i := strings.LastIndex(s, " for -"); i >= 0 {
			name, _, _ := strings.Cut(s[i+len(" for -"):], ":")
			return &Fault{Key: typed(args, name), Problem: s[:i] + " is neither true nor false",
				Hint: "write --" + name + " alone"}
		}
	}
	return &Fault{Problem: s, Hint: "write flags as --name or --name VALUE"}
}

// finish checks the values against each other and returns the result.
func (d *decoder) finish(c *Config) (*Config, error) {
	if !d.Stopped {
		check(d, c)
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// ShellWord quotes a word if a shell requires it.
func ShellWord(s string) string {
	plain := !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_=+:,./@%", r) && (r < '0' || r > '9') &&
			(r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if plain && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
