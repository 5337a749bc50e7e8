package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/deliver"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/queue"
)

// Parameters of deliveries. Chosen.
const (
	messageAge = 72 * time.Hour // then a message is no longer useful
	recordWait = 2 * time.Second
)

// none is the value of Gone in an update that says that the receiver accepts messages again.
const none = "none"

func digest(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:])
}

// off reports whether the receiver at this URL has answered that it wants no more messages.
func (st *postState) off(url string) bool { return st.Gone != "" && st.Gone == digest(url) }

// add applies an update to a state.
func (st *postState) add(news *postState) {
	switch news.Gone {
	case "":
	case none:
		st.Gone, st.GoneAt = "", time.Time{}
	default:
		st.Gone, st.GoneAt = news.Gone, news.GoneAt
	}
	st.Sent, st.Failed, st.Dropped = st.Sent+news.Sent, st.Failed+news.Failed, st.Dropped+news.Dropped
	if news.Success != nil {
		st.Success = news.Success
	}
	if news.Failure != nil {
		st.Failure = news.Failure
	}
}

// Deliver implements queue.Handler. No message becomes a dead job, which somebody would have to
// take care of: a message that cannot be delivered is counted and dropped.
func (p *webhookPost) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	w := p.set.Load()
	test := strings.HasPrefix(j.Key, testPrefix)
	st, err := p.state(ctx)
	if err != nil {
		p.log.Debug("record of a webhook not read", "webhook", p.name, "error", err)
	}
	now := time.Now()
	switch {
	case !test && st.off(w.file.URL):
		return p.drop(ctx, j, nil)
	case now.Sub(j.Enqueued) > messageAge:
		return p.drop(ctx, j, errors.New("too old"))
	}
	o := w.target.Deliver(ctx, j)
	switch answer, _ := errors.AsType[*deliver.StatusError](o.Err); {
	case o.Err == nil:
		p.sent.Add(1)
		news := postState{Sent: 1, Success: &api.WebhookSuccess{ID: j.Key, At: time.Now().UTC()}}
		if st.Gone != "" {
			news.Gone = none
		}
		p.keep(ctx, news)
		return o
	case ctx.Err() != nil:
		return o
	case answer != nil && answer.Code == http.StatusGone:
		p.failed.Add(1)
		p.log.Error("webhook switched off: its receiver answers 410 Gone", "webhook", p.name,
			"hint", "headgate webhook test "+p.name+" switches it on again when that is taken, a reload with "+
				"another url too")
		news := p.failure(j, o.Err)
		news.Gone, news.GoneAt = digest(w.file.URL), time.Now().UTC()
		p.keep(ctx, news)
		return p.drop(ctx, j, nil)
	case answer != nil && (answer.Code == http.StatusBadGateway || answer.Code == http.StatusGatewayTimeout):
		o.Busy = true // Standard Webhooks: the receiver is overloaded
	}
	p.failed.Add(1)
	p.keep(ctx, p.failure(j, o.Err))
	if test { // the operator who waits for it has seen the result
		return p.drop(ctx, j, nil)
	}
	o.Retry = true // also after 404: the receiver may be in a deployment, or get its secret later
	return o
}

func (p *webhookPost) failure(j *queue.Job, err error) postState {
	return postState{Failed: 1,
		Failure: &api.WebhookFailure{ID: j.Key, At: time.Now().UTC(), Why: err.Error()}}
}

// drop gives up a message. why is logged, unless it is nil because the reason has been logged.
func (p *webhookPost) drop(ctx context.Context, j *queue.Job, why error) queue.Outcome {
	p.dropped.Add(1)
	p.keep(ctx, postState{Dropped: 1})
	if why != nil {
		p.log.Warn("message of a webhook given up", "webhook", p.name, "id", j.Key, "why", why)
	}
	return queue.Outcome{}
}

// doc returns the record of the webhook. One that cannot be read starts anew: it has only statistics.
func (p *webhookPost) doc() *store.Doc[postState] {
	return &store.Doc[postState]{Store: p.store, Key: "webhook." + p.name, Lost: func(error) {},
		Decode: func(b []byte) (st postState, _ error) {
			if json.Unmarshal(b, &st) != nil {
				return postState{}, nil
			}
			return st, nil
		}}
}

// state returns the state of the webhook. If the record cannot be read, it returns what was last
// read.
func (p *webhookPost) state(ctx context.Context) (postState, error) {
	ctx, stop := context.WithTimeout(ctx, recordWait)
	defer stop()
	st, _, err := p.doc().Load(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		st = p.was
	}
	p.was = st
	st.add(&p.due)
	return st, err
}

// keep adds an update to the record. If the write fails, the update is written with the next one.
func (p *webhookPost) keep(ctx context.Context, news postState) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), recordWait)
	defer stop()
	p.keeping.Lock()
	defer p.keeping.Unlock()
	p.mu.Lock()
	p.due.add(&news)
	if news.Gone == none {
		p.due.Gone = none
	}
	due := p.due
	p.mu.Unlock()
	var kept postState
	_, err := p.doc().Edit(ctx, func(st *postState) (bool, error) {
		st.add(&due)
		kept = *st
		return true, nil
	})
	if err != nil {
		p.log.Debug("record of a webhook not written", "webhook", p.name, "error", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.was, p.due = kept, postState{}
}

// testPrefix is the prefix of the IDs of test messages.
const testPrefix = "test-"
