package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/status"
)

// statusCommand prints the table of rooms.
func statusCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("status", flag.ContinueOnError)
	watch := flags.Bool("watch", false, "")
	asJSON := flags.Bool("json", false, "")
	o, words, err := operatorFlags(flags, "status", args)
	switch {
	case err != nil:
		return err
	case len(words) > 0:
		return noWords(words, "the rooms are all shown; try headgate status --watch")
	case *watch && *asJSON:
		return usageFault("--json: cannot stand beside --watch", "leave one of them out")
	case *watch:
		return watch1s(ctx, stdout, func(ctx context.Context) (string, error) {
			rooms, err := o.rooms(ctx)
			return table(rooms), err
		})
	case *asJSON:
		var raw json.RawMessage
		if err := o.do(ctx, http.MethodGet, "/v1/rooms", nil, &raw); err != nil {
			return err
		}
		var b bytes.Buffer
		if err := json.Indent(&b, raw, "", "  "); err != nil {
			return err
		}
		fmt.Fprintln(stdout, strings.TrimSpace(b.String()))
		return nil
	}
	rooms, err := o.rooms(ctx)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, table(rooms))
	return nil
}

func (o *operator) rooms(ctx context.Context) ([]status.Room, error) {
	var all struct {
		Rooms []status.Room `json:"rooms"`
	}
	err := o.do(ctx, http.MethodGet, "/v1/rooms", nil, &all)
	return all.Rooms, err
}

// watch1s redraws the output of show each second until ctx ends. On a terminal it uses the
// alternate screen, overwrites the old text so that nothing flickers, and leaves the last table
// behind. It waits for a headgate that restarts.
func watch1s(
	ctx context.Context, stdout io.Writer, show func(context.Context) (string, error),
) error {
	const (
		enter, leave       = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
		home, clear, below = "\x1b[H", "\x1b[K\n", "\x1b[J"
	)
	_, tty := height(stdout)
	if tty {
		fmt.Fprint(stdout, enter)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := ""
	for {
		text, err := show(ctx)
		switch {
		case ctx.Err() != nil: // keep the last complete table
		case err != nil:
			last = fmt.Sprintf("%s  %v\n", time.Now().Format(time.TimeOnly), err)
		default:
			last = time.Now().Format(time.TimeOnly) + "\n" + text
		}
		switch {
		case ctx.Err() != nil && tty:
			fmt.Fprint(stdout, leave+last)
			return nil
		case ctx.Err() != nil:
			return nil
		case tty:
			lines, _ := height(stdout)
			shown := strings.ReplaceAll(firstLines(last, lines-1), "\n", clear)
			fmt.Fprint(stdout, home+shown+below)
		default:
			fmt.Fprintln(stdout, last)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// table formats the rooms in 80 columns.
func table(rooms []status.Room) string {
	var b strings.Builder
	row := func(name, state, inside, waiting, wait, fresh, origin string) {
		fmt.Fprintf(&b, "%-18s %-9s %13s %9s %8s %11s %s\n",
			cut(name, 18), state, inside, waiting, wait, fresh, origin)
	}
	row("room", "state", "inside", "waiting", "wait", "new/minute", "origin")
	for i := range rooms {
		s := &rooms[i]
		wait := "-"
		if s.WaitingUsers > 0 {
			wait = about(s.MaxWaitSeconds)
		}
		origin := "up"
		if !s.OriginUp {
			origin = "DOWN"
		}
		row(s.Name, stateWord(s), of(s.ActiveUsers, s.TotalActiveUsers), count(s.WaitingUsers), wait,
			of(s.NewUsersLastMinute, s.NewUsersPerMinute), origin)
	}
	for i := range rooms {
		b.WriteString(lanes(&rooms[i]) + found(&rooms[i]) + troubles(&rooms[i]))
	}
	return b.String()
}

// lanes formats the lanes of a room, one per line.
func lanes(s *status.Room) string {
	var b strings.Builder
	for _, x := range s.Lanes {
		gone := ""
		if x.Gone {
			gone = ", taken away: until it is empty"
		}
		fmt.Fprintf(&b, "%s: lane %s: %s waiting, %d of 100 calls%s\n",
			cut(s.Name, 18), x.Name, count(x.Waiting), x.Share, gone)
	}
	return b.String()
}

// found formats what was found about the limits of a room.
func found(s *status.Room) string {
	a := s.Auto
	if a == nil {
		return ""
	}
	text := fmt.Sprintf("%s: limit %s", cut(s.Name, 18), a.Mode)
	if a.Mode != config.AutoOn {
		text += fmt.Sprintf(", found %s", count(a.Active))
	}
	if a.Knee > 0 {
		text += fmt.Sprintf(", the origin answers %.0f requests a second within its target", a.Knee)
	}
	text += "; " + a.Reason
	if a.Trouble != "" {
		text += "; " + a.Trouble
	}
	return text + "\n"
}

// troubles returns the faults of a room's record that an operator must know, one per line.
func troubles(s *status.Room) string {
	var b strings.Builder
	if s.Record.WriteFailing > 0 {
		fmt.Fprintf(&b, "%s: the data folder takes no writes, for %s: the log says why\n",
			cut(s.Name, 18), about(s.Record.WriteFailing))
	}
	if s.Record.Quiet > 0 {
		fmt.Fprintf(&b, "%s: the record was old at the start: nobody new comes in for %s\n",
			cut(s.Name, 18), about(s.Record.Quiet))
	}
	return b.String()
}

// stateWord returns the most important state of a room.
func stateWord(s *status.Room) string {
	switch {
	case s.Status == "suspended":
		return "suspended"
	case s.Closed:
		return "closed"
	case s.QueueAll:
		return "queue all"
	case s.Status == "event_prequeueing":
		return "prequeue"
	case s.Method == "reject", s.Method == "passthrough":
		return s.Method
	case s.Status == "not_queueing":
		return "open"
	}
	return s.Status
}

// of formats a number and its limit.
func of(n, limit int64) string { return count(n) + "/" + count(limit) }

// readyAgain is the time between two questions of headgate ready --wait. Chosen.
const readyAgain = 250 * time.Millisecond

// readyCommand asks /readyz: for health checks of containers that have no other program.
func readyCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	flags := flag.NewFlagSet("ready", flag.ContinueOnError)
	wait := flags.Duration("wait", 0, "")
	o, words, err := operatorFlags(flags, "ready", args)
	if err = cmp.Or(err, noWords(words, "headgate ready takes flags only")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(*wait, 5*time.Second))
	defer cancel()
	end := time.Now().Add(*wait)
	for {
		err := o.askReady(ctx, stdout)
		if err == nil || !time.Now().Add(readyAgain).Before(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(readyAgain):
		}
	}
}

// askReady asks once. The answer is a line of text.
func (o *operator) askReady(ctx context.Context, stdout io.Writer) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return &hint.Error{Text: "no headgate answers at " + o.URL, Err: err,
			Do: "start headgate run, or name its admin_listen: --admin http://HOST:PORT"}
	}
	defer res.Body.Close()
	said, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	switch text := strings.TrimSpace(string(said)); {
	case err != nil:
		return err
	case res.StatusCode == http.StatusOK && text == "ok":
		_, err = fmt.Fprintln(stdout, text)
		return err
	case strings.HasPrefix(text, "not ready: "):
		return &hint.Error{Text: text, Do: "headgate ready --wait 30s waits for it"}
	}
	return &hint.Error{Text: "what answers at " + o.URL + " is not headgate's address for operators",
		Do: "name its admin_listen: --admin http://HOST:PORT"}
}
