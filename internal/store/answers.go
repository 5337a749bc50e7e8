package store

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// A remedy is what helps when the engine refuses to write.
type remedy uint8

const (
	startAnew remedy = iota // it cannot write, and goes on refusing until it is started anew
	askLater                // it is sound: it is without its others, or in the middle of something
	asIs                    // the question is at fault: neither asking again nor a start changes the answer
)

// Answers of nats-server (errors.json) that package jetstream has no names for.
const (
	codeIncomplete  = 10004 // JSClusterIncompleteErr
	codeNotAssigned = 10007 // JSClusterNotAssignedErr
	codeNotNow      = 10008 // JSClusterNotAvailErr
	codeNoLeader    = 10009 // JSClusterNotLeaderErr
	codeStoreFailed = 10077 // JSStreamStoreFailedF, of which only the text tells the reason
	codeOffline     = 10118 // JSStreamOfflineErr
	codeUnderWay    = 10158 // JSStreamDuplicateMessageConflict
	codeNotReady    = 10163 // JSStreamExpectedLastSeqPerSubjectNotReady
	codeTooMany     = 10167 // JSStreamTooManyRequests
	codeOfflineFor  = 10194 // JSStreamOfflineReasonErrF
)

// remedyOf tells what helps against an answer. nats-server classes its answers as HTTP does: what is
// below 500 is said of the question.
func remedyOf(e *jetstream.APIError) remedy {
	switch e.ErrorCode {
	case codeNotNow, // the servers have no leader
		codeNoLeader,    // this one leads no more, and the next is being elected
		codeIncomplete,  // some servers have not answered the one that was asked
		codeNotAssigned, // the stream is on its way to another server
		codeUnderWay,    // the same entry, sent before, is being written
		codeNotReady,    // writes of that key are being repeated by the others
		codeTooMany:     // its queue is full of questions, which it works off
		return askLater
	case codeOffline, codeOfflineFor: // it was made by a newer nats-server, and is after a start, too
		return asIs
	case jetstream.JSErrCodeJetStreamNotEnabled, // JetStream is switched off after a write has failed
		jetstream.JSErrCodeJetStreamNotEnabledForAccount,
		codeStoreFailed,            // the disk is full or fails
		codeResources, codeStorage: // so much of the disk was free when it started
		return startAnew
	}
	if e.Code >= 400 && e.Code < 500 {
		return asIs
	}
	return startAnew
}

// passes reports whether an answer is that of a sound engine, which must be asked again.
func passes(e *jetstream.APIError) bool { return remedyOf(e) == askLater }

// broken reports whether a write has failed because the engine must be started anew. Silence tells so
// as well, for what fails is not answered. A replicated stream tells nothing of the engine of this
// process: its leader may be another, or none for some seconds, and a start would keep them apart for
// longer. There an engine that cannot write says so itself, in its log, and is started anew for that.
func broken(ctx context.Context, err error, replicated bool) bool {
	if replicated {
		return false
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return remedyOf(e) == startAnew
	}
	return errors.Is(err, context.DeadlineExceeded) && !overslept(ctx)
}
