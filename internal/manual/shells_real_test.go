//go:build real

package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealShells completes lines in bash, zsh and fish, and lets man and groff read a page.
func TestRealShells(t *testing.T) {
	commands := []Command{{Name: "queue", Summary: "put jobs, and don't stop: now", Help: help},
		{Name: "run", Summary: "run headgate", Help: "usage: headgate run --config FILE\n\n  --config FILE  a file\n"}}
	dir := t.TempDir()
	for _, shell := range Shells() {
		file := filepath.Join(dir, shell)
		if err := os.WriteFile(file, []byte(Completion(shell, commands)), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct{ line, want string }{
			{"headgate q", "queue"},
			{"headgate queue p", "pause put"},
			{"headgate queue put --f", "--from"},
			{"headgate queue pause --per ", "day hour"},
			{"headgate run --c", "--config"},
			{"headgate help r", "run"},
		} {
			script := map[string]string{
				"bash": `. "$1"; COMP_WORDS=($2); [ "${2% }" = "$2" ] || COMP_WORDS+=("")
					COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _headgate; printf '%s\n' "${COMPREPLY[@]}" | sort`,
				// The functions of its completion system are replaced by ones that print.
				"zsh": `compdef() { : }; _files() { : }
					offer() { local w; for w; do [[ $w == "$words[CURRENT]"* ]] && print -r -- $w; done; return 0 }
					compadd() { offer "$@" }
					_describe() { offer "${(@)${(@P)2}%%:*}" }
					words=("${(@s: :)2}"); CURRENT=$#words; . "$1"; _headgate | sort`,
				"fish": `source $argv[1]; complete -C "$argv[2]" | string replace -r '\t.*' '' | sort`,
			}[shell]
			args := []string{"-c", script, shell, file, x.line}
			switch shell {
			case "fish":
				args = []string{"--no-config", "-c", script, file, x.line}
			case "zsh":
				args = append([]string{"-f"}, args...)
			}
			out, err := exec.Command(shell, args...).CombinedOutput()
			if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != x.want {
				t.Errorf("%s: %q: got %q, %v, want %q", shell, x.line, got, err, x.want)
			}
		}
	}
	page := filepath.Join(dir, "headgate-queue.1")
	if err := os.WriteFile(page, []byte(Page(&commands[0], "v0.1.0", commands)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("groff", "-ww", "-man", "-Tutf8", page).CombinedOutput()
	if err != nil || strings.Contains(string(out), "warning") || !strings.Contains(string(out), ".dot 'quote \\ x") {
		t.Errorf("groff: %v\n%s", err, out)
	}
}
