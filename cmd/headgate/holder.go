package main

import (
	"bufio"
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

	"github.com/headgate/headgate/internal/adminclient"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/holders"
)

// A shownHolder is a holder as the API returns it.
type shownHolder struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Plan    string     `json:"plan"`
	Note    string     `json:"note"`
	Created time.Time  `json:"created_at"`
	Revoked *time.Time `json:"revoked_at"`
	OldKey  *time.Time `json:"old_key_until"`
	Key     string     `json:"key"`
}

// String returns the holder as one line.
func (h *shownHolder) String() string {
	plan := h.Plan
	if plan == "" {
		plan = "-"
	}
	s := fmt.Sprintf("%s  %-8s  %s", h.ID, plan, h.Name)
	if h.Note != "" {
		s += " (" + h.Note + ")"
	}
	if h.Revoked != nil {
		s += ", revoked " + h.Revoked.Local().Format(time.DateTime)
	}
	if h.OldKey != nil && h.OldKey.After(time.Now()) {
		s += ", the key before counts until " + h.OldKey.Local().Format(time.DateTime)
	}
	return s
}

// holderCommand makes and manages the holders of keys.
func holderCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("holder", flag.ContinueOnError)
	keep := flags.Duration("keep", 24*time.Hour, "")
	from := flags.Int("from", 1, "")
	o, words, err := operatorFlags(flags, "holder", args)
	if err != nil {
		return err
	}
	o.scope = "holders"
	verb := ""
	if len(words) > 0 {
		verb, words = words[0], words[1:]
	}
	var h shownHolder
	switch n := len(words); {
	case verb == "add" && n > 0:
		return o.addHolder(ctx, stdout, stderr, words)
	case verb == "import" && n == 1 && *from > 0:
		return o.importHolders(ctx, stdout, stderr, words[0], *from)
	case verb == "list" && n == 0:
		return o.listHolders(ctx, stdout)
	case verb == "show" && n == 1:
		o.scope = ""
		err = o.oneHolder(ctx, http.MethodGet, words[0], "", nil, &h)
	case verb == "set" && n > 1:
		var pairs map[string]string
		if pairs, err = holderPairs(words[1:]); err == nil {
			err = o.oneHolder(ctx, http.MethodPatch, words[0], "", pairs, &h)
		}
	case verb == "rotate" && n == 1:
		err = o.oneHolder(ctx, http.MethodPost, words[0], "/rotate", map[string]string{"keep": keep.String()}, &h)
	case verb == "revoke" && n == 1:
		err = o.oneHolder(ctx, http.MethodPost, words[0], "/revoke", nil, &h)
	case verb == "remove" && n == 1:
		if err = o.oneHolder(ctx, http.MethodDelete, words[0], "", nil, nil); err == nil {
			fmt.Fprintln(stdout, "removed")
		}
		return err
	default:
		return usageFault("holder: what is to be done?",
			"write headgate holder add NAME [plan=PLAN] [note=TEXT], holder import FILE, holder list, "+
				"holder show ID, holder set ID KEY=VALUE, holder rotate ID, holder revoke ID or holder remove ID")
	}
	if err != nil {
		return err
	}
	printHolder(stdout, stderr, &h)
	return nil
}

// printHolder prints a holder. A new key goes to stdout alone, for scripts.
func printHolder(stdout, stderr io.Writer, h *shownHolder) {
	if h.Key == "" {
		fmt.Fprintln(stdout, h)
		return
	}
	fmt.Fprintln(stderr, h)
	fmt.Fprintln(stderr, "this is the only time that the key is shown:")
	fmt.Fprintln(stdout, h.Key)
}

// holderPairs parses words such as plan=pro.
func holderPairs(words []string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if _, twice := pairs[key]; !ok || twice {
			return nil, &hint.Error{Text: word + " is no value of a holder", Do: "write each once, as plan=pro"}
		}
		pairs[key] = value
	}
	return pairs, nil
}

func (o *operator) addHolder(ctx context.Context, stdout, stderr io.Writer, words []string) error {
	pairs, err := holderPairs(words[1:])
	if err != nil {
		return err
	}
	pairs["name"] = words[0]
	var h shownHolder
	if err := o.do(ctx, http.MethodPost, "/v1/holders", pairs, &h); err != nil {
		return err
	}
	printHolder(stdout, stderr, &h)
	return nil
}

// oneHolder sends a request about a holder. In place of its ID one of its keys will do, which is not sent.
func (o *operator) oneHolder(ctx context.Context, method, id, path string, in, out any) error {
	if strings.HasPrefix(id, holders.Prefix) {
		own, ok := holders.Parse(id)
		if !ok {
			return &hint.Error{Text: "this is no key: a letter is missing or wrong", Do: "copy all of it, or take the ID"}
		}
		id = own.String()
	}
	return o.do(ctx, method, "/v1/holders/"+url.PathEscape(id)+path, in, out)
}

// listHolders prints all holders, page after page.
func (o *operator) listHolders(ctx context.Context, w io.Writer) error {
	o.scope = ""
	damaged := false
	for after := ""; ; {
		var got struct {
			Holders []shownHolder `json:"holders"`
			Next    string        `json:"next"`
			Damaged int           `json:"damaged"`
		}
		if err := o.do(ctx, http.MethodGet, "/v1/holders?count=1000&after="+after, nil, &got); err != nil {
			return err
		}
		for i := range got.Holders {
			fmt.Fprintln(w, &got.Holders[i])
		}
		damaged = damaged || got.Damaged > 0
		if after = got.Next; after != "" {
			continue
		}
		if damaged {
			return &hint.Error{Text: "the list is not complete: a record of holders is damaged",
				Do: "see headgate doctor, and restore a backup"}
		}
		return nil
	}
}

// importHolders makes a holder for each line of a file, from a line on, and prints the line of each with its
// key. It reads and sends the file in parts.
func (o *operator) importHolders(ctx context.Context, stdout, stderr io.Writer, name string, from int) error {
	in := io.Reader(os.Stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return &hint.Error{Text: err.Error(), Do: "name a file with one holder per line, or - for the standard input"}
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	line, made := 0, 0
	enc := json.NewEncoder(stdout)
	enc.SetEscapeHTML(false)
	for more := true; more; {
		var body bytes.Buffer
		begin, count := line+1, 0
		for count < holders.MostAtOnce {
			if more = lines.Scan(); !more {
				break
			}
			if line++; line < from {
				begin = line + 1
				continue
			}
			body.Write(append(lines.Bytes(), '\n'))
			count++
		}
		if len(bytes.TrimSpace(body.Bytes())) == 0 {
			continue
		}
		part, err := o.importPart(ctx, body.Bytes(), enc)
		made += part
		if err != nil {
			fmt.Fprintf(stderr, "%d holders were made; their keys are above. The part that failed begins at line %d\n", made, begin)
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", line+1, err)
	}
	fmt.Fprintf(stderr, "%d holders were made; this is the only time that their keys are shown\n", made)
	return nil
}

// importPart sends some lines, and prints the holders that were made.
func (o *operator) importPart(ctx context.Context, body []byte, enc *json.Encoder) (made int, err error) {
	var got struct {
		Made    int               `json:"made"`
		Failed  int               `json:"failed"`
		Error   string            `json:"error"`
		Holders []json.RawMessage `json:"holders"`
	}
	err = o.Send(ctx, http.MethodPost, "/v1/holders", "application/x-ndjson", body, &got)
	if _, refused := errors.AsType[*adminclient.Refusal](err); err != nil && !refused {
		return 0, &hint.Error{Text: err.Error(), Do: "some holders of this part may have been made without " +
			"their keys having arrived: look for them with headgate holder list, and rotate or remove them"}
	}
	if err = o.explain(ctx, http.MethodPost, err); err != nil {
		return 0, err
	}
	for _, h := range got.Holders {
		if err := enc.Encode(h); err != nil {
			return got.Made, fmt.Errorf("the keys could not be written: %w", err)
		}
	}
	if got.Failed > 0 {
		return got.Made, &hint.Error{Text: got.Error,
			Do: fmt.Sprintf("send the last %d lines of this part again, with --from", got.Failed)}
	}
	return got.Made, nil
}
