package store

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A remedy is what helps when the engine rejects a write.
type remedy uint8

const (
	startAnew remedy = iota // it cannot write, and rejects all writes until it is restarted
	askLater                // it is sound: it lacks other servers, or is in the middle of something
	asIs                    // the request is wrong: neither a retry nor a restart helps
)

// Error codes of nats-server (errors.json) that package jetstream does not name.
const (
	codeIncomplete  = 10004 // JSClusterIncompleteErr
	codeNotAssigned = 10007 // JSClusterNotAssignedErr
	codeNotNow      = 10008 // JSClusterNotAvailErr
	codeNoLeader    = 10009 // JSClusterNotLeaderErr
	codeStoreFailed = 10077 // JSStreamStoreFailedF; only its text has the reason
	codeOffline     = 10118 // JSStreamOfflineErr
	codeUnderWay    = 10158 // JSStreamDuplicateMessageConflict
	codeNotReady    = 10163 // JSStreamExpectedLastSeqPerSubjectNotReady
	codeTooMany     = 10167 // JSStreamTooManyRequests
	codeOfflineFor  = 10194 // JSStreamOfflineReasonErrF
)

// remedyOf returns the remedy for an answer. nats-server classifies its answers like HTTP: a code
// below 500 means that the request is wrong.
func remedyOf(e *jetstream.APIError) remedy {
	switch e.ErrorCode {
	case codeNotNow, // the servers have no leader
		codeNoLeader,    // this server lost the leadership; a new leader is being elected
		codeIncomplete,  // some servers have not answered the server that received the request
		codeNotAssigned, // the stream is moving to another server
		codeUnderWay,    // the same entry, sent before, is being written
		codeNotReady,    // the other servers are replicating writes of that key
		codeTooMany:     // its queue is full of requests, which it works through
		return askLater
	case codeOffline, codeOfflineFor: // made by a newer nats-server; a restart does not help
		return asIs
	case jetstream.JSErrCodeJetStreamNotEnabled, // JetStream turns itself off after a failed write
		jetstream.JSErrCodeJetStreamNotEnabledForAccount,
		codeStoreFailed,            // the disk is full or fails
		codeResources, codeStorage: // its limits are from the free disk space at its start
		return startAnew
	}
	if e.Code >= 400 && e.Code < 500 {
		return asIs
	}
	return startAnew
}

// broken reports whether a write failed because the engine must be restarted. A timeout means that
// too, because a failed write gets no answer. It does not with a replicated stream: the leader may
// be another server, or missing for some seconds, and a restart of this engine would only prolong
// that. There an engine that cannot write reports it in its log, and is restarted for that.
func broken(ctx context.Context, err error, replicated bool) bool {
	if replicated {
		return false
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return remedyOf(e) == startAnew
	}
	return errors.Is(err, context.DeadlineExceeded) && !overslept(ctx)
}

// overslept reports whether the process was suspended while the deadline passed. The engine was
// suspended with it, and its answer may be about to arrive.
func overslept(ctx context.Context) bool {
	const late = time.Second // chosen: on a busy machine a timer is late by less
	end, ok := ctx.Deadline()
	return ok && time.Since(end) > late
}

// While a cluster elects a leader, requests are lost and not rejected, so each request is repeated.
// Chosen: an answer takes milliseconds, and a write to a busy disk takes a second. Callers give up
// after 10 s, and until then a duplicate entry is recognized by its id.
const (
	askFor   = 2 * time.Second
	askAgain = 100 * time.Millisecond
	idsFor   = 20 * time.Second
)

// asked calls f until there is an answer or ctx ends. Each attempt has its own timeout.
func asked(ctx context.Context, f func(context.Context) error) error {
	for {
		try, stop := context.WithTimeout(ctx, askFor)
		err := f(try)
		stop()
		if !unanswered(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

// unanswered reports whether a request was neither accepted nor rejected, so that a retry may help.
func unanswered(err error) bool {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return remedyOf(e) == askLater
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, errAgain) || errors.Is(err, ErrNoResponder) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)
}
