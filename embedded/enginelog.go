package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Log lines of the engine that need no action: clients must start with a TLS handshake, as Connect
// does, and another store node does not answer, which happens whenever one starts before it.
const (
	handshakeFirst = "Clients that are not using"
	routeFailed    = "Error trying to connect to route"
)

// Log lines of the engine about a link that need no action: the other data center is down, or a
// connection was rejected. Lines about one connection begin with its address.
const (
	linkFailed = "Error trying to connect as leafnode"
	ofOneLink  = " - lid:"
)

// A logger forwards the log of the engine. Operators of headgate need its warnings and errors, but
// not its notices.
type logger struct {
	log  *slog.Logger
	sick func(error)
	said *quota
	mu   sync.Mutex
	err  string
}

// sayAgain is how long the same log line is not repeated. Otherwise a full disk would fill the log
// too. Chosen.
const sayAgain = time.Minute

// A quota lets each kind of log line through once in a while.
type quota struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (q *quota) first(kind string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last, ok := q.last[kind]; ok && time.Since(last) < sayAgain {
		return false
	}
	if q.last == nil {
		q.last = map[string]time.Time{}
	}
	q.last[kind] = time.Now()
	return true
}

func (l *logger) say(level slog.Level, format string, v []any) {
	text := fmt.Sprintf(format, v...)
	if level >= slog.LevelError {
		l.mu.Lock()
		l.err = text
		l.mu.Unlock()
	}
	if level < slog.LevelWarn || l.said.first(kindOf(format)) {
		l.log.Log(context.Background(), level, "engine", "says", text)
	}
	failed := strings.Contains(text, storeFailed) || strings.Contains(text, logFailed)
	if level >= slog.LevelError && failed {
		l.sick(errors.New(text))
	}
}

// storeFailed is part of the engine's log line when a write has failed. The engine does not inform
// the client (nats-server, processJetStreamMsg): without this text a failed write would be noticed
// only by its timeout. logFailed is the same for data that is replicated, which the engine then
// stops writing (nats-server, setWriteErrLocked).
const (
	storeFailed = "failed to store a msg"
	logFailed   = "Critical write error"
)

// last returns the last error, for the message of a failed start.
func (l *logger) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == "" {
		return "it does not say why"
	}
	return l.err
}

// Noticef implements server.Logger.
func (l *logger) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, v ...any) {
	if !strings.HasPrefix(format, handshakeFirst) {
		l.say(slog.LevelWarn, format, v)
	}
}

// Fatalf implements server.Logger. It does not end the process: Open returns the reason.
func (l *logger) Fatalf(format string, v ...any) { l.say(slog.LevelError, format, v) }

// Errorf implements server.Logger.
func (l *logger) Errorf(format string, v ...any) {
	if strings.HasPrefix(format, routeFailed) || isOfLink(format) {
		l.say(slog.LevelWarn, format, v)
		return
	}
	l.say(slog.LevelError, format, v)
}

// Debugf implements server.Logger.
func (l *logger) Debugf(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// Tracef implements server.Logger.
func (l *logger) Tracef(string, ...any) {}

// isOfLink reports whether a log line of the engine is about a link between data centers.
func isOfLink(format string) bool {
	return strings.HasPrefix(format, linkFailed) || strings.Contains(format, ofOneLink)
}

// kindOf returns the part of a log line that is the same for all connections: everything except the
// address and the number at its beginning.
func kindOf(format string) string {
	if _, after, ok := strings.Cut(format, ofOneLink); ok {
		_, rest, _ := strings.Cut(after, " - ")
		return ofOneLink + rest
	}
	return format
}
