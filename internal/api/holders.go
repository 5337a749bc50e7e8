package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/holders"
	"github.com/headgate/headgate/internal/store"
)

// Bounds of one request. Chosen: keepKey is enough to give a new key to all programs of a holder.
const (
	maxHolders   = 1000
	someHolders  = 100
	maxHolder    = 4 << 10
	keepKey      = 24 * time.Hour
	mostKeepKey  = 30 * 24 * time.Hour
	holderWait   = 15 * time.Second // as for other live changes
	holdersWait  = 60 * time.Second // of many holders
	auditIDs     = 20               // of many holders, in the audit log
	nameOfHolder = "name"
	planOfHolder = "plan"
	noteOfHolder = "note"
)

// Holders gives access to the holders of keys. Of the zero value nobody has a key.
type Holders struct {
	Book  *holders.Book
	Plans func() []string // returns the plans that a holder may have
}

// holderRoutes returns the routes of holders of keys.
func (a *API) holderRoutes() []route {
	const one = "/v1/holders/{holder}"
	return []route{
		{"GET", "/v1/holders", scopeRead, false, named(a.holders, "count", "after")},
		{"POST", "/v1/holders", scopeHolders, false, named(a.addHolders)},
		{"GET", one, scopeRead, false, a.oneHolder(a.holder)},
		{"PATCH", one, scopeHolders, false, a.oneHolder(a.changeHolder)},
		{"DELETE", one, scopeHolders, false, a.oneHolder(a.removeHolder)},
		{"POST", one + "/rotate", scopeHolders, false, a.oneHolder(a.rotateHolder)},
		{"POST", one + "/revoke", scopeHolders, false, a.oneHolder(a.revokeHolder)},
	}
}

// A holderShown is a holder in an answer.
type holderShown struct {
	ID      holders.ID `json:"id"`
	Name    string     `json:"name"`
	Plan    string     `json:"plan"`
	Note    string     `json:"note"`
	Created time.Time  `json:"created_at"`
	Revoked *time.Time `json:"revoked_at"`
	OldKey  *time.Time `json:"old_key_until"`
	Key     string     `json:"key,omitempty"` // only of a new one
}

func showHolder(h *holders.Holder, key string) holderShown {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return holderShown{h.ID, h.Name, h.Plan, h.Note, h.Created, at(h.Revoked), at(h.OldKey), key}
}

// auditHolder returns a holder in the form of the audit log.
func auditHolder(h *holders.Holder) map[string]string {
	told := map[string]string{"holder": h.ID.String(), nameOfHolder: h.Name, planOfHolder: h.Plan}
	for what, text := range map[string]string{noteOfHolder: h.Note, "revoked_at": timeText(h.Revoked),
		"old_key_until": timeText(h.OldKey)} {
		if text != "" {
			told[what] = text
		}
	}
	return told
}

// auditMany returns holders that were made together in the form of the audit log: how many, when, and the
// first IDs. All others have the same created_at.
func auditMany(made []holders.Made) map[string]string {
	told := map[string]string{"made": strconv.Itoa(len(made))}
	var ids []string
	for i := range made[:min(len(made), auditIDs)] {
		ids = append(ids, made[i].ID.String())
	}
	if len(ids) > 0 {
		told["created_at"] = made[0].Created.Format(time.RFC3339Nano)
		told["holders"] = strings.Join(ids, " ")
	}
	return told
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// book returns the holders, or why there are none.
func (a *API) book() (*holders.Book, error) {
	if b := a.cfg.Holders.Book; b != nil && b.IsOpen() {
		return b, nil
	}
	return nil, holderProblem(holders.ErrClosed)
}

// holders handles GET /v1/holders?after=&count=.
func (a *API) holders(c *call) (any, error) {
	book, err := a.book()
	if err != nil {
		return nil, err
	}
	q := c.r.URL.Query()
	count, err := strconv.Atoi(cmp.Or(q.Get("count"), strconv.Itoa(someHolders)))
	after, ok := holders.ParseID(q.Get("after"))
	if err != nil || count < 1 || count > maxHolders || !ok && q.Get("after") != "" {
		return nil, &problem{Status: http.StatusBadRequest, Code: "invalid_query",
			Detail: "count must be a whole number from 1 to " + strconv.Itoa(maxHolders) + ", and after the ID of a holder",
			Hint:   "set after to the next of the previous answer"}
	}
	ctx, stop := context.WithTimeout(c.r.Context(), holdersWait)
	defer stop()
	all, err := book.List(ctx, after, q.Get("after") == "", count)
	if err != nil {
		return nil, holderProblem(err)
	}
	answer := struct {
		Holders []holderShown   `json:"holders"`
		Next    string          `json:"next,omitempty"` // send it as after; "" means that there are no more
		Damaged [][2]holders.ID `json:"damaged,omitempty"`
	}{Holders: []holderShown{}, Damaged: all.Damaged}
	for i := range all.Holders {
		answer.Holders = append(answer.Holders, showHolder(&all.Holders[i], ""))
	}
	if all.More {
		answer.Next = all.Holders[count-1].ID.String()
	}
	return answer, nil
}

// oneHolder returns a handler of one holder.
func (a *API) oneHolder(
	do func(context.Context, *call, *holders.Book, holders.ID) (any, error),
) func(*call) (any, error) {
	return named(func(c *call) (any, error) {
		book, err := a.book()
		if err != nil {
			return nil, err
		}
		id, ok := holders.ParseID(c.r.PathValue("holder"))
		if !ok {
			return nil, holderProblem(holders.ErrNone)
		}
		ctx, stop := context.WithTimeout(context.WithoutCancel(c.r.Context()), holderWait) // not half done
		defer stop()
		got, err := do(ctx, c, book, id)
		if err != nil {
			if c.done.Asked == nil {
				c.done.Asked = map[string]string{"holder": id.String()}
			}
			return nil, holderProblem(err)
		}
		return got, nil
	})
}

// holder handles GET /v1/holders/{holder}.
func (a *API) holder(ctx context.Context, c *call, book *holders.Book, id holders.ID) (any, error) {
	h, err := book.Get(ctx, id)
	return c.showHolder(&h, ""), err
}

// showHolder returns a holder whose version is the ETag of the answer.
func (c *call) showHolder(h *holders.Holder, key string) holderShown {
	c.w.Header().Set("ETag", `"`+h.Version()+`"`)
	return showHolder(h, key)
}

// holderVersion returns the version that a holder must have, "" for any.
func (c *call) holderVersion() string {
	s := strings.TrimSpace(c.r.Header.Get("If-Match"))
	if s == "" || s == "*" {
		return ""
	}
	// An empty tag, as of a script that has read none, is the version of no holder.
	return cmp.Or(strings.Trim(strings.TrimPrefix(s, "W/"), `"`), s)
}

// changeHolder handles PATCH /v1/holders/{holder}: {"plan": "pro"}.
func (a *API) changeHolder(ctx context.Context, c *call, book *holders.Book, id holders.ID) (any, error) {
	body, err := readBody(c, maxHolder, "shorten the note")
	if err != nil {
		return nil, err
	}
	pairs, err := holderPairs(body)
	if err != nil {
		return nil, err
	}
	version, plans := c.holderVersion(), a.cfg.Holders.Plans()
	before, after, err := book.Edit(ctx, id, version, plans, func(h *holders.Holder) {
		texts := map[string]*string{nameOfHolder: &h.Name, planOfHolder: &h.Plan, noteOfHolder: &h.Note}
		for key, dst := range texts {
			if text, ok := pairs[key]; ok {
				*dst = text
			}
		}
	})
	if err != nil {
		return nil, err
	}
	c.done.Before, c.done.After = auditHolder(&before), auditHolder(&after)
	return c.showHolder(&after, ""), nil
}

// removeHolder handles DELETE /v1/holders/{holder}.
func (a *API) removeHolder(ctx context.Context, c *call, book *holders.Book, id holders.ID) (any, error) {
	before, err := book.Remove(ctx, id, c.holderVersion())
	if err == nil {
		c.done.Before = auditHolder(&before)
	}
	return map[string]bool{"removed": true}, err
}

// rotateHolder handles POST /v1/holders/{holder}/rotate: {"keep": "24h"}, or no body.
func (a *API) rotateHolder(ctx context.Context, c *call, book *holders.Book, id holders.ID) (any, error) {
	body, err := readBody(c, maxHolder, `send {"keep": "24h"}`)
	if err != nil {
		return nil, err
	}
	keep := keepKey
	if len(bytes.TrimSpace(body)) > 0 {
		pairs, err := parsePairs(body)
		if err != nil {
			return nil, err
		}
		keep, err = time.ParseDuration(pairs["keep"])
		if err != nil || len(pairs) != 1 || keep < 0 || keep > mostKeepKey {
			return nil, &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_change",
				Detail: "keep must be a duration from 0s to 720h, and nothing else may be there",
				Hint:   `send {"keep": "24h"}, for how long the present key counts`}
		}
	}
	m, before, err := book.Rotate(ctx, id, c.holderVersion(), keep)
	if err != nil {
		return nil, err
	}
	c.done.Before, c.done.After = auditHolder(&before), auditHolder(&m.Holder)
	return c.showHolder(&m.Holder, m.Key), nil
}

// revokeHolder handles POST /v1/holders/{holder}/revoke.
func (a *API) revokeHolder(ctx context.Context, c *call, book *holders.Book, id holders.ID) (any, error) {
	before, after, err := book.Revoke(ctx, id, c.holderVersion())
	if err != nil {
		return nil, err
	}
	c.done.Before, c.done.After = auditHolder(&before), auditHolder(&after)
	return c.showHolder(&after, ""), nil
}

// holderPairs parses the texts of a holder. A number would lose its zeros.
func holderPairs(body []byte) (map[string]string, error) {
	pairs, err := parsePairs(body)
	if err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, badBody("the body is not a JSON object")
	}
	for key := range pairs {
		if !slices.Contains([]string{nameOfHolder, planOfHolder, noteOfHolder}, key) || raw[key][0] != '"' {
			return nil, &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_holder",
				Detail: holders.Quote(key) + " is no text of a holder",
				Hint:   `send {"name": "Ada Ltd", "plan": "pro", "note": "invoice 17"}, each as text in quotes`}
		}
	}
	return pairs, nil
}

// addHolders handles POST /v1/holders: one holder as a JSON object, or many as NDJSON. The answer is the only
// place where their keys are.
func (a *API) addHolders(c *call) (any, error) {
	book, err := a.book()
	if err != nil {
		return nil, err
	}
	switch lines, known := sendsLines(c.r); {
	case lines:
		return a.addMany(c, book)
	case !known:
		return nil, &problem{Status: http.StatusUnsupportedMediaType, Code: "unknown_format",
			Detail: "the type of the body is neither application/json nor application/x-ndjson",
			Hint:   "send one holder as application/json, or many as application/x-ndjson, one per line"}
	}
	body, err := readBody(c, maxHolder, "shorten the note")
	if err != nil {
		return nil, err
	}
	pairs, err := holderPairs(body)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.r.Context()), holderWait)
	defer stop()
	made, err := book.Add(ctx, []holders.Holder{holderOf(pairs)}, a.cfg.Holders.Plans())
	if err != nil {
		maps.DeleteFunc(pairs, func(_, text string) bool { return strings.Contains(text, holders.Prefix) })
		c.done.Asked = asked(pairs)
		return nil, holderProblem(err)
	}
	c.done.After = auditHolder(&made[0].Holder)
	c.status = http.StatusCreated
	return c.showHolder(&made[0].Holder, made[0].Key), nil
}

func holderOf(pairs map[string]string) holders.Holder {
	return holders.Holder{Name: pairs[nameOfHolder], Plan: pairs[planOfHolder], Note: pairs[noteOfHolder]}
}

// addMany makes one holder for each line. Nothing is made if a line is invalid. If the store fails in
// between, the first lines are made, and the answer has their keys.
func (a *API) addMany(c *call, book *holders.Book) (any, error) {
	select {
	case a.bulks <- struct{}{}:
		defer func() { <-a.bulks }()
	default:
		return nil, &problem{Status: http.StatusServiceUnavailable, Code: "busy",
			Detail: "too many requests with many lines at the same time", Hint: "retry in a second"}
	}
	drafts, err := readHolders(c, a.cfg.Holders.Plans())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.r.Context()), holdersWait)
	defer stop()
	made, err := book.Add(ctx, drafts, a.cfg.Holders.Plans())
	c.done.After = auditMany(made)
	if len(made) == 0 && err != nil {
		return nil, holderProblem(err)
	}
	answer := struct {
		Made    int           `json:"made"`
		Failed  int           `json:"failed"` // the last lines: send them again
		Error   string        `json:"error,omitempty"`
		Holders []holderShown `json:"holders"`
	}{Made: len(made), Failed: len(drafts) - len(made), Holders: []holderShown{}}
	if err != nil {
		a.cfg.Log.Error("not all holders were made", "request", c.id, "made", len(made), "error", err)
		answer.Error = problemOf(holderProblem(err)).Detail
	}
	for i := range made {
		answer.Holders = append(answer.Holders, showHolder(&made[i].Holder, made[i].Key))
	}
	c.status = http.StatusCreated
	return answer, nil
}

// readHolders reads the lines of a request.
func readHolders(c *call, plans []string) (drafts []holders.Holder, err error) {
	// Only servers in tests have no deadlines.
	http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(linePatience))
	r := bufio.NewReaderSize(c.r.Body, 64<<10)
	var faults []lineFault
	for n := 1; ; n++ {
		line, err := readLine(r, maxHolder)
		last := errors.Is(err, io.EOF)
		if err != nil && !last && !errors.Is(err, errLongLine) {
			return nil, badBody("cannot read the body: " + err.Error())
		}
		if len(drafts) > holders.MostAtOnce || n > 2*holders.MostAtOnce {
			return nil, &problem{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large",
				Detail: fmt.Sprintf("more than %d holders in one request", holders.MostAtOnce), Hint: "send it in parts"}
		}
		if err == nil || last {
			err = nil
			if len(bytes.TrimSpace(line)) > 0 {
				var pairs map[string]string
				if pairs, err = holderPairs(line); err == nil {
					drafts = append(drafts, holderOf(pairs))
					err = drafts[len(drafts)-1].Check(plans)
				}
			}
		}
		if err != nil && len(faults) < mostFaults {
			faults = append(faults, lineFault{n, problemOf(holderProblem(err)).Detail})
		}
		if last {
			break
		}
	}
	switch {
	case len(faults) > 0:
		return nil, &problem{Status: http.StatusUnprocessableEntity, Code: "broken_lines", Lines: faults,
			Detail: fmt.Sprintf("line %d: %s", faults[0].Line, faults[0].Detail), Hint: "correct the lines: nothing was made"}
	case len(drafts) == 0:
		return nil, badBody("the body has no lines")
	}
	return drafts, nil
}

// holderProblem converts an error of holders to a problem.
func holderProblem(err error) error {
	if _, ok := errors.AsType[*problem](err); ok {
		return err
	}
	if e, ok := errors.AsType[*holders.InvalidError](err); ok {
		return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_holder", Detail: e.Reason, Hint: e.Do}
	}
	switch {
	case errors.Is(err, errLongLine):
		return badBody(fmt.Sprintf("a line is longer than %d bytes", maxHolder))
	case errors.Is(err, holders.ErrNone):
		return &problem{Status: http.StatusNotFound, Code: "no_such_holder", Detail: err.Error(),
			Hint: "GET /v1/holders lists them; the ID is the part of a key between hgk_ and the next _"}
	case errors.Is(err, holders.ErrVersion):
		return &problem{Status: http.StatusPreconditionFailed, Code: "changed", Detail: err.Error(),
			Hint: "read it again, and send its ETag as If-Match"}
	case errors.Is(err, holders.ErrClosed):
		return &problem{Status: http.StatusConflict, Code: "no_holders", Detail: err.Error(),
			Hint: "add plans: {holders: {}} to the configuration, and reload"}
	case errors.Is(err, holders.ErrFull):
		return &problem{Status: http.StatusInsufficientStorage, Code: "holders_full", Detail: err.Error(),
			Hint: "remove holders that were revoked"}
	case errors.Is(err, store.ErrDenied):
		return &problem{Status: http.StatusConflict, Code: "refused", Detail: err.Error(),
			Hint: "send it to a node that keeps records: headgate cluster status lists them"}
	}
	return &NotPersistedError{Err: err, Reason: "the store did not answer: it is not certain that the change was made",
		Do: "GET the holder, and retry; remove a new holder whose key did not arrive"}
}
