// Package rights lists what the certificate of a worker may do in the cluster.
//
// # The promise
//
// A worker serves visitors, so it can be stolen more easily than a store node. It
// reaches the counters, the shared limits and the records that it needs, and nothing
// else: no stream, no consumer, no sealing key in a record, no loan of another worker.
// Everything that is not listed here is denied.
//
// # Concurrency and cost
//
// The package is pure and has no state. The lists are made once per connection.
//
// # What it does not do
//
// It enforces nothing: package embedded gives the subjects to the NATS server, and
// package store asks for the records. It does not decide who is a worker: the
// certificate does (package join).
package rights

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// inbox begins the subjects of the answers for one worker.
const inbox = "_INBOX.w."

// drawn begins the names that workers without a name of their own draw at the start.
const drawn = "w-"

// The subjects of package store: a question, and a message to all.
const (
	ask  = "headgate.1.ask."
	tell = "headgate.1.tell."
)

// Inbox returns the prefix of the inboxes of a worker that knows secret. Nodes that the
// worker asks see the prefix, and cannot compute the secret that the server wants for it:
// so no worker reads the answers that another one gets.
func Inbox(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return inbox + hex.EncodeToString(sum[:16])
}

// ByBus reports whether a connection with this prefix of inboxes is a worker's.
func ByBus(prefix string) bool { return strings.HasPrefix(prefix, inbox) }

// IsReply reports whether a message may be answered: the reply subject must be an inbox.
// Without this check a worker that may not write a record could name the subject of the
// record as the reply subject, and the node that answers would write it.
func IsReply(subject string) bool { return strings.HasPrefix(subject, "_INBOX.") }

// Subjects are what one worker may send and receive.
type Subjects struct{ Publish, Subscribe []string }

// Of returns the subjects of a worker. The node's name must have passed [Named].
func Of(node, secret string) Subjects {
	all := func(head string, names ...string) (subjects []string) {
		for _, name := range names {
			subjects = append(subjects, head+name)
		}
		return subjects
	}
	own := []string{"try." + node}
	served := append([]string{"limits-known." + node, "analytics." + node, "session.>", "queue.>"}, own...)
	return Subjects{
		// A permission to answer what was received (Permissions.Response of nats-server) would
		// be a hole: who receives its own question chooses the subject that it may answer to.
		// The inboxes of others are drawn at random.
		Publish: slices.Concat([]string{"_INBOX.>"}, all(ask, own...), all(ask,
			"asks.>", "sync.>", "settings.>", "signals.>", "time.>", "clock.>", "via.>", // of a room's counter
			"limits.at.*", "limits.chart.*", "limits.uses.*", "limits.signals.*", // of the shared limits
			"global.at.*", "global.chart.*", "global.uses.*", "global.signals.*", "global.pass.*", "limit-at-home",
			"limits-known.*", "analytics.*", "session.>", "queue.>",
			"records", "logs", "sealing"), // of the store nodes, which check each question
			all(tell, append(own, "workers", "live", "codes", "limit", "rooms", "made", "origin", "queue.>")...)),
		Subscribe: slices.Concat([]string{Inbox(secret) + ".>"}, all(ask, served...), all(tell,
			append(own, "members", "workers", "recall.>", "state.>", "live", "codes", "limit", "rooms", "made",
				"origin", "holders", "limits.chart", "limits.recall", "global.chart", "global.recall", "home", "queue.>")...)),
	}
}

// Drawn returns the name of a worker that has none of its own.
func Drawn(n uint32) string { return fmt.Sprintf(drawn+"%08x", n) }

// Named reports whether a worker may call itself node: labels are the names in its
// certificate without the domain. All workers may draw a name.
func Named(node string, labels []string) bool {
	if slices.Contains(labels, node) {
		return true
	}
	hexed, ok := strings.CutPrefix(node, drawn)
	return ok && len(hexed) == 8 && strings.Trim(hexed, "0123456789abcdef") == ""
}

// Reads reports whether a worker may read the record of a key. Not among them: the
// sealing keys, which it asks for instead, and the records of counters, which hold the
// numbers by which each worker proves what it was lent.
func Reads(key string) bool {
	return Writes(key) || slices.Contains([]string{"home", "limits.chart", "global.chart", "holders"}, key) ||
		strings.HasPrefix(key, "limit-found.") || strings.HasPrefix(key, "holders.")
}

// Logs reports whether a worker may read and write a log: not the usage of keys, for which somebody may pay.
func Logs(name string) bool { return name != "usage_hours" && name != "usage_days" }

// Writes reports whether a worker may write the record of a key: what the management API
// changes, with the revoked invitations, what webhooks have sent, the rates of queues, which it
// may deliver, and leases of the queue package.
func Writes(key string) bool {
	if slices.Contains([]string{"rooms", "limit-changes", "limits-made", "told-limits"}, key) {
		return true
	}
	return slices.ContainsFunc([]string{"live.", "codes.", "page.", "told.", "webhook.", "queue-rate.", "leases/"},
		func(head string) bool { return strings.HasPrefix(key, head) })
}
