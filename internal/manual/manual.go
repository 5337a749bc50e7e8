// Package manual makes manual pages and shell completions out of the help texts of commands. There is no
// other list of subcommands and flags: what a help text does not name is not completed.
//
// A help text begins with its usage. A line that begins with two spaces and a dash explains a flag.
package manual

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Command is one word after the name of the program.
type Command struct {
	Name    string
	Summary string
	Help    string
}

// A Flag is one of a command.
type Flag struct {
	Name   string // without dashes
	Value  string // "" for a switch
	Text   string
	Values []string // what the value is one of; nil: anything
}

var (
	flagLine = regexp.MustCompile(`^  --?([a-z][a-z0-9-]*)(?: ([^ ]+))?(?:  +(.*))?$`)
	flagWord = regexp.MustCompile(`(?:^|[\s\[|(])--([a-z][a-z0-9-]*)(?: ([A-Za-z0-9|_:-]+))?`)
	wordLine = regexp.MustCompile(`^[a-z][a-z|-]*$`)
	choice   = regexp.MustCompile(`^[a-z0-9]+(\|[a-z0-9]+)+$`)
)

// usage returns the first paragraph of the help text, without its title.
func (c *Command) usage() string {
	text, _, _ := strings.Cut(c.Help, "\n\n")
	return strings.TrimPrefix(text, "usage: ")
}

// Subcommands returns the words that may follow the command, and the words of its first argument if those are
// written out: bash|zsh|fish.
func (c *Command) Subcommands() (all []string) {
	for line := range strings.Lines(c.usage()) {
		_, rest, ok := strings.Cut(line, "headgate "+c.Name+" ")
		word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if !ok || !wordLine.MatchString(word) {
			continue
		}
		for w := range strings.SplitSeq(word, "|") {
			if !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}

// Flags returns the flags that the help text names, in their order there.
func (c *Command) Flags() (all []Flag) {
	add := func(f Flag) {
		if choice.MatchString(f.Value) {
			f.Values = strings.Split(f.Value, "|")
		}
		i := slices.IndexFunc(all, func(x Flag) bool { return x.Name == f.Name })
		switch {
		case i < 0:
			all = append(all, f)
		case f.Values != nil:
			all[i].Values = f.Values
		}
	}
	lines := strings.Split(c.Help, "\n")
	for i, line := range lines {
		if m := flagLine.FindStringSubmatch(line); m != nil {
			f := Flag{Name: m[1], Value: m[2], Text: m[3]}
			if f.Text == "" && i+1 < len(lines) { // the text is on the next line
				f.Text = strings.TrimSpace(lines[i+1])
			}
			add(f)
		}
	}
	for _, m := range flagWord.FindAllStringSubmatch(c.usage(), -1) {
		add(Flag{Name: m[1], Value: m[2]})
	}
	return all
}

// dashed returns the flags as they are typed.
func (c *Command) dashed() (all []string) {
	for _, f := range c.Flags() {
		all = append(all, "--"+f.Name)
	}
	return all
}

// Shells returns the shells that Completion knows.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Completion returns the script of a shell, or "" for another one.
func Completion(shell string, commands []Command) string {
	switch shell {
	case "bash":
		return bash(commands)
	case "zsh":
		return zsh(commands)
	case "fish":
		return fish(commands)
	}
	return ""
}

// bash completes files where it knows no word.
func bash(commands []Command) string {
	var b strings.Builder
	b.WriteString("# bash completion for headgate\n_headgate() {\n" +
		"  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" words=\"\"\n" +
		"  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    words=\"help")
	for _, c := range commands {
		b.WriteString(" " + c.Name)
	}
	b.WriteString("\"\n  else\n    case \"${COMP_WORDS[1]} $prev\" in\n")
	for i := range commands {
		commands[i].valued(&b, "words=\"%s\"", "")
	}
	b.WriteString("    'help help') words=\"")
	for _, c := range commands {
		b.WriteString(c.Name + " ")
	}
	b.WriteString("\" ;;\n    *) case \"${COMP_WORDS[1]}\" in\n")
	for i := range commands {
		c := &commands[i]
		fmt.Fprintf(&b, "      %s) words=\"%s\"", c.Name, strings.Join(c.dashed(), " "))
		if sub := c.Subcommands(); sub != nil {
			fmt.Fprintf(&b, "; [ \"$COMP_CWORD\" -eq 2 ] && words=\"%s $words\"", strings.Join(sub, " "))
		}
		b.WriteString(" ;;\n")
	}
	b.WriteString("      esac ;;\n    esac\n  fi\n" +
		"  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _headgate headgate\n")
	return b.String()
}

// valued writes the cases in which the word before is a flag with a value: one of several, or any.
func (c *Command) valued(b *strings.Builder, some, other string) {
	var free []string
	for _, f := range c.Flags() {
		at := "'" + c.Name + " --" + f.Name + "'"
		switch {
		case f.Values != nil:
			fmt.Fprintf(b, "    %s) "+some+" ;;\n", at, strings.Join(f.Values, " "))
		case f.Value != "":
			free = append(free, at)
		}
	}
	if free != nil {
		fmt.Fprintf(b, "    %s) %s ;;\n", strings.Join(free, "|"), other)
	}
}

// zsh is a file _headgate in a folder of fpath.
func zsh(commands []Command) string {
	var b strings.Builder
	b.WriteString("#compdef headgate\n_headgate() {\n  local -a found\n" +
		"  if (( CURRENT == 2 )); then\n    found=(help:'explain a command'")
	for _, c := range commands {
		fmt.Fprintf(&b, " %s:%s", c.Name, single(c.Summary))
	}
	b.WriteString(")\n    _describe command found\n    return\n  fi\n  case \"$words[2] $words[CURRENT-1]\" in\n")
	for i := range commands {
		commands[i].valued(&b, "compadd %s; return", "_files; return")
	}
	b.WriteString("  esac\n  case \"$words[2]\" in\n  help) found=(")
	for _, c := range commands {
		fmt.Fprintf(&b, " %s:%s", c.Name, single(c.Summary))
	}
	b.WriteString(") ;;\n")
	for i := range commands {
		c := &commands[i]
		fmt.Fprintf(&b, "  %s) found=(", c.Name)
		for _, f := range c.Flags() {
			fmt.Fprintf(&b, " --%s:%s", f.Name, single(f.Text))
		}
		b.WriteString(")")
		if sub := c.Subcommands(); sub != nil {
			fmt.Fprintf(&b, "; (( CURRENT == 3 )) && found=(%s $found)", strings.Join(sub, " "))
		}
		b.WriteString(" ;;\n")
	}
	b.WriteString("  esac\n  _describe argument found\n  _files\n}\n" +
		"if [ \"$funcstack[1]\" = _headgate ]; then _headgate \"$@\"; else compdef _headgate headgate; fi\n")
	return b.String()
}

func fish(commands []Command) string {
	var b strings.Builder
	b.WriteString("# fish completion for headgate\n")
	const first = "__fish_is_first_arg"
	fmt.Fprintf(&b, "complete -c headgate -n %s -f -a help -d 'explain a command'\n", first)
	for i := range commands {
		c := &commands[i]
		fmt.Fprintf(&b, "complete -c headgate -n %s -f -a %s -d %s\n", first, c.Name, single(c.Summary))
		fmt.Fprintf(&b, "complete -c headgate -n '__fish_seen_subcommand_from help' -f -a %s\n", c.Name)
		in := "'__fish_seen_subcommand_from " + c.Name + "'"
		if sub := c.Subcommands(); sub != nil {
			fmt.Fprintf(&b, "complete -c headgate -n %s -a '%s'\n", in, strings.Join(sub, " "))
		}
		for _, f := range c.Flags() {
			fmt.Fprintf(&b, "complete -c headgate -n %s -l %s -d %s", in, f.Name, single(f.Text))
			switch {
			case f.Values != nil:
				fmt.Fprintf(&b, " -x -a '%s'", strings.Join(f.Values, " "))
			case f.Value != "":
				b.WriteString(" -r")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// single quotes a text for all three shells.
func single(s string) string {
	return "'" + strings.NewReplacer("'", "’", `\`, "", ":", " -").Replace(s) + "'"
}

// Page returns the manual page of a command, for section 1: its help text, in the lines that it has.
func Page(c *Command, version string, others []Command) string {
	name := "headgate"
	if c.Name != "" {
		name += "-" + c.Name
	}
	_, body, _ := strings.Cut(c.Help, "\n\n")
	usage := c.usage()
	if c.Name == "" {
		usage, body = "headgate COMMAND [ARGUMENT...]", c.Help
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"headgate %s\" \"headgate\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name),
		roff(version), roff(name), roff(c.Summary))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n.SH DESCRIPTION\n.nf\n%s\n.fi\n.SH SEE ALSO\n", roff(strings.ReplaceAll(usage, "\n       ", "\n")),
		roff(strings.TrimSpace(body)))
	var see []string
	for _, o := range others {
		if o.Name != c.Name {
			see = append(see, ".BR headgate\\-"+o.Name+" (1)")
		}
	}
	b.WriteString(strings.Join(see, ",\n") + "\n")
	return b.String()
}

// roff escapes a text: a line must not begin with a dot or a quote, and a hyphen must stay one.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\t", "    ").Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
