package manual

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const help = `usage: headgate queue put QUEUE FILE [--keep] [--from LINE]
       headgate queue pause|resume QUEUE [--per hour|day]
       headgate queue move-all

Puts jobs. See --nothing.

  headgate queue put orders - --keep

  --keep             put the valid lines, and don't stop
  --from LINE        begin with this line
  -arrive duration
    	arrivals are spread over this long
.dot 'quote \ x
`

func TestAHelpTextIsRead(t *testing.T) {
	c := &Command{Name: "queue", Help: help}
	if diff := cmp.Diff([]string{"put", "pause", "resume", "move-all"}, c.Subcommands()); diff != "" {
		t.Errorf("subcommands (-want +got):\n%s", diff)
	}
	want := []Flag{
		{Name: "keep", Text: "put the valid lines, and don't stop"},
		{Name: "from", Value: "LINE", Text: "begin with this line"},
		{Name: "arrive", Value: "duration", Text: "arrivals are spread over this long"},
		{Name: "per", Value: "hour|day", Values: []string{"hour", "day"}},
	}
	if diff := cmp.Diff(want, c.Flags()); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	if got := Completion("tcsh", []Command{*c}); got != "" {
		t.Errorf("of an unknown shell: got %q", got)
	}
}

func TestAPageEscapesWhatRoffReads(t *testing.T) {
	page := Page(&Command{Name: "queue", Summary: "put jobs", Help: strings.Replace(help, "\n\n", "\n       headgate queue list\n\n", 1)}, "v0.1.0",
		[]Command{{Name: "queue"}, {Name: "run"}})
	for _, want := range []string{".TH HEADGATE-QUEUE 1 ", `headgate\-queue \- put jobs`, "\n\\&.dot 'quote \\e x\n",
		`\-\-from LINE`, "\nheadgate queue list\n", ".BR headgate\\-run (1)\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}
