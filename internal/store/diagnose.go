package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// AutoReplicas, as a number of replicas, means three if the engine is a cluster, and one if it is a
// single server. It does not mean one when other servers of a cluster are temporarily down, because
// the stream would stay that way.
const AutoReplicas = -1

// An UnusableError is why an engine cannot keep the records until a person acts.
type UnusableError struct {
	Problem   string
	Action    string // what to do
	Transient bool   // it may also resolve itself
}

func (e *UnusableError) Error() string { return e.Problem }

// Hint returns what to do.
func (e *UnusableError) Hint() string { return e.Action }

// Oldest is the oldest version of NATS that may keep the records. From 2.15 on, with sync_interval:
// always, a replicated stream is synced once for each entry of its log before the entry is
// acknowledged (nats-server #8447; docs/protocol.md §2, A2).
const Oldest = "2.15.0"

// TooOld returns an UnusableError if the server of a connection is older than Oldest, nil
// otherwise.
func TooOld(conn *nats.Conn) error {
	if version := conn.ConnectedServerVersion(); older(version, Oldest) {
		return &UnusableError{Problem: fmt.Sprintf("the NATS server %s is %s, and headgate needs %s or newer",
			conn.ConnectedServerName(), version, Oldest),
			Action: "upgrade all servers, one after the other"}
	}
	return nil
}

// Diagnose returns why an engine that answered with err cannot keep the records. It returns nil if
// the engine may only be slow to start.
func Diagnose(conn *nats.Conn, err error) *UnusableError {
	if e := unfitConn(conn); e != nil {
		return e
	}
	if e, ok := errors.AsType[*UnusableError](err); ok {
		return e
	}
	api, _ := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return &UnusableError{Problem: "JetStream is not switched on for this account of NATS",
			Action: "switch it on for the account, with room for 100 MB, or use another account"}
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return &UnusableError{Problem: "no server of this NATS has JetStream switched on",
			Action: "add jetstream {store_dir: …, sync_interval: always} to the servers' configuration"}
	case alone(err):
		return &UnusableError{Problem: "the NATS server is alone, and three replicas are wanted",
			Action: "connect to a NATS cluster of three, or take engine.replicas out"}
	case api != nil && api.ErrorCode == codeNoPeers:
		return &UnusableError{Problem: "NATS has too few servers for the replicas: " + api.Description,
			Action: "start all servers of the NATS cluster, or set engine.replicas: 1", Transient: true}
	case api != nil && (api.ErrorCode == codeStorage || api.ErrorCode == codeResources):
		return &UnusableError{Problem: "NATS has no room for the records: " + api.Description,
			Action: "give the account, or the servers, room for 100 MB on the disk", Transient: true}
	}
	return nil
}

func unfitConn(conn *nats.Conn) *UnusableError {
	last := conn.LastError()
	if conn.IsConnected() {
		if e, ok := errors.AsType[*UnusableError](TooOld(conn)); ok {
			return e
		}
		if errors.Is(last, nats.ErrPermissionViolation) {
			return &UnusableError{Problem: "NATS forbids what headgate must do: " + last.Error(),
				Action: "give the user the permissions of docs/cluster.md, Your own NATS"}
		}
		return nil
	}
	for _, err := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAccountAuthExpired,
		nats.ErrAuthRevoked} {
		if errors.Is(last, err) {
			return &UnusableError{Problem: "NATS does not let headgate in: " + last.Error(),
				Action: "look at the user in engine.credentials, and at what the servers know of it"}
		}
	}
	return nil
}

// older reports whether a version is older than another. It compares versions such as 2.15.2 and
// 2.15.0-RC.1 by their three numbers. A version of another form counts as new enough: it is a
// private build of somebody who knows it.
func older(version, than string) bool {
	a, b := numbers(version), numbers(than)
	return a != nil && slices.Compare(a, b) < 0
}

func numbers(version string) []int {
	core, _, _ := strings.Cut(version, "-")
	parts := strings.Split(core, ".")
	all := make([]int, len(parts))
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return nil
		}
		all[i] = n
	}
	return all
}

// Error codes that package jetstream does not name (nats-server, jetstream_errors_generated.go).
const (
	codeNoPeers   = 10005 // JSClusterNoPeersErrF
	codeResources = 10023 // JSInsufficientResourcesErr
	codeStorage   = 10047 // JSStorageResourcesExceededErr
	codeAlone     = 10074 // JSStreamReplicasNotSupportedErr
)

// alone reports whether replicas were requested from a single server that is no cluster.
func alone(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == codeAlone
}

// unfit returns an error for a stream that was made or changed by others so that it could return
// old values or lose records.
func unfit(cfg *jetstream.StreamConfig) error {
	var is string
	switch {
	case cfg.AllowDirect:
		is = "allow_direct is on, so that a server may answer with an old value"
	case cfg.Storage != jetstream.FileStorage:
		is = "it is in memory"
	case cfg.Retention != jetstream.LimitsPolicy:
		is = "its retention is not limits"
	case len(cfg.Subjects) != 1 || cfg.Subjects[0] != subjectHead+">":
		is = "its subjects are not " + subjectHead + "> alone"
	case cfg.MaxAge > 0 || cfg.MaxMsgs > 0 || cfg.MaxBytes > 0:
		is = "max_age, max_msgs or max_bytes would let go of records"
	case cfg.MaxMsgsPerSubject != 1 || cfg.Discard != jetstream.DiscardOld:
		is = "it does not keep the newest value of each key alone: max_msgs_per_subject: 1, discard: old"
	case cfg.Mirror != nil || len(cfg.Sources) > 0 || cfg.Sealed || cfg.NoAck ||
		cfg.PersistMode == jetstream.AsyncPersistMode:
		is = "it is a mirror, has sources, is sealed, does not acknowledge, or not in time"
	case cfg.MaxMsgSize > 0 && cfg.MaxMsgSize < maxValue:
		is = "max_msg_size is below 1 MB"
	default:
		return nil
	}
	return &UnusableError{Problem: fmt.Sprintf("the stream %s is not as headgate makes it: %s", streamName, is),
		Action: "change it as docs/cluster.md, Your own NATS, has it, or let headgate make it"}
}
