package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/ratelimit"
)

// limitsKey is the key of the record with the live changes of limits. All nodes of a data center
// follow it, including nodes that start later. LimitsTopic is the topic of a message that the
// record has changed.
const (
	limitsKey   = "limit-changes"
	LimitsTopic = "limit"
)

// mostChanges limits the size of that record in bytes. Chosen: it is part of a share, beside
// sealing keys and the changes of rooms (mostShare).
const mostChanges = 256 << 10

var errChanges = errors.New(
	"live changes of limits are too many: write them into the configuration, and reload",
)

// Limits holds the rate limits of the process: those of files with their live changes, and the
// dynamic ones that were made while headgate runs.
type Limits struct {
	Rules *ratelimit.Limiter

	node *node.Node
	log  *slog.Logger
	turn *chanmutex.Mutex
	note Note

	defined atomic.Pointer[map[string]Definition]
	taken   taken // guarded by turn

	seekers atomic.Pointer[map[string]*seeker]
	// finding guards what was found, and what puts it into force. It is not the turn, which waits for the
	// store: a lower amount is in force at once.
	finding sync.Mutex
	erases  map[string]bool // limits whose found amount is to be forgotten; guarded by turn

	dynamic      atomic.Pointer[map[string]inForce] // in addition to the limits of files
	takenDynamic taken                              // guarded by turn
	dynamicUpTo  [2]uint64                          // versions in takenDynamic: own, all
	// dynamic limits hidden by limits of files; guarded by turn
	covered []string
}

// A Note records who changes a room or a limit, before the change.
type Note func(ctx context.Context, room, limit string, keys []string, by string)

// NewLimits returns the limits of a configuration. t guards all changes of the process.
func NewLimits(
	rules *ratelimit.Limiter, cfg *config.Config, n *node.Node, t *chanmutex.Mutex, note Note,
	log *slog.Logger,
) *Limits {
	s := &Limits{Rules: rules, node: n, log: log, turn: t, note: note}
	s.dynamic.Store(&map[string]inForce{})
	defined := map[string]Definition{}
	for _, c := range LimitConfigs(cfg) {
		defined[c.Name] = define(c)
	}
	s.defined.Store(&defined)
	s.seekers.Store(s.seekersOf(defined, nil))
	s.erases = numbers(defined)
	return s
}

// A limitChange is the live changes of a limit, possibly none. It is in force at each node whose
// file defines the limit as the file of the node that wrote it does. A node that starts or reloads
// with another definition writes an empty change: then old changes do not return with the old file.
type limitChange struct {
	Of    string            `json:"of"` // hash of the definition in the file
	Pairs map[string]string `json:"pairs"`
	// Version is the time of the write in ms since 1970, or one more than the previous version if
	// that is later. For a limit that all data centers share, only the home creates versions; the
	// greatest is in force.
	Version uint64 `json:"version,omitempty"`
}

// under returns the changed values that apply to a definition.
func (x limitChange) under(f Definition) map[string]string {
	if x.Of != f.hash {
		return nil
	}
	return x.Pairs
}

// next returns the change that follows x, for a definition.
func (x limitChange) next(f Definition, pairs map[string]string) limitChange {
	y := limitChange{Of: f.hash, Pairs: map[string]string{}}
	y.Version = max(uint64(time.Now().UnixMilli()), x.Version+1)
	maps.Copy(y.Pairs, x.under(f))
	maps.Copy(y.Pairs, pairs)
	return y
}

// changes returns the record with the live changes of limits.
func (s *Limits) changes() *store.Doc[map[string]limitChange] {
	return &store.Doc[map[string]limitChange]{Store: s.node.Records, Key: limitsKey, Try: editTry,
		Encode: func(live map[string]limitChange) ([]byte, error) {
			b, err := json.Marshal(live)
			if err == nil && len(b) > mostChanges {
				err = errChanges
			}
			return b, err
		},
		Lost: func(err error) {
			s.log.Error("changes of limits are lost: they are as the file says", "error", err)
		},
		Bus: s.node.Bus, Topic: LimitsTopic, Log: s.log,
	}
}

// editChanges changes the record by calling edit, which reports whether there is anything to write.
// It publishes the change to the other nodes and data centers.
func (s *Limits) editChanges(ctx context.Context, edit func(live map[string]limitChange) bool) error {
	written := false
	_, err := s.changes().Edit(ctx, func(live *map[string]limitChange) (bool, error) {
		if *live == nil {
			*live = map[string]limitChange{}
		}
		written = edit(*live)
		return written, nil
	})
	if err == nil && written {
		s.node.PublishToDatacenters()
	}
	return err
}

// editTry limits one attempt to read or write a record. Chosen: an attempt takes milliseconds, and
// a request that is lost with a leader of the store never gets an answer.
const editTry = time.Second

// notWritten returns the error for a change that the store may not have written.
func notWritten(err error) error {
	return &api.NotPersistedError{
		Err:    err,
		Reason: "the change could not be written: it is not in force, or its acknowledgment was lost",
		Do:     "check the limit when the store answers (headgate cluster status), and repeat the change",
	}
}

// Source returns where a limit comes from: the file, the rules for Envoy or the API.
func (s *Limits) Source(limit string) string {
	if IsEnvoys(limit) {
		return api.FromEnvoy
	}
	if (*s.defined.Load())[limit].hash != "" {
		return api.FromFile
	}
	return api.FromAPI
}

// SetFile puts the limits of a checked configuration into force. The usage of their keys stays. A
// limit that has the same definition as before keeps its live changes. SetFile calls before ahead
// of removing limits that are not in the file any more.
func (s *Limits) SetFile(cfg *config.Config, before func()) {
	was, kept := *s.defined.Load(), map[string]Definition{}
	for name, x := range was {
		if IsEnvoys(name) {
			kept[name] = x
		}
	}
	for _, c := range LimitConfigs(cfg) {
		if kept[c.Name] = define(c); kept[c.Name].hash == was[c.Name].hash {
			continue
		}
		s.finding.Lock() // an amount found between the two would not be in force
		s.fit(&c)
		err := s.Rules.SetLimit(c)
		s.finding.Unlock()
		if err != nil {
			panic(fmt.Sprintf("limit %q was checked: %v", c.Name, err))
		}
	}
	s.defined.Store(&kept)
	for name := range *s.seekers.Load() {
		s.erases[name] = true // unless it is found again
	}
	s.seekers.Store(s.seekersOf(kept, *s.seekers.Load()))
	before() // requests would otherwise use removed limits
	dynamic := *s.dynamic.Load()
	for _, c := range s.Rules.Limits() {
		if _, stays := dynamic[c.Name]; !stays && kept[c.Name].hash == "" && !IsEnvoys(c.Name) {
			_ = s.Rules.Remove(c.Name) // it exists: it was listed
		}
	}
}

// Define defines limits of the rules for Envoy. It stops at the first error. Limits with an
// unchanged definition stay as they are.
func (s *Limits) Define(limits []ratelimit.Limit) error {
	defined := maps.Clone(*s.defined.Load())
	for _, c := range limits {
		x := define(c)
		if defined[c.Name].hash == x.hash {
			continue
		}
		if err := s.Rules.SetLimit(c); err != nil {
			return err
		}
		defined[c.Name] = x
	}
	s.defined.Store(&defined)
	return nil
}

// Undefine removes a limit of the rules for Envoy.
func (s *Limits) Undefine(limit string) {
	_ = s.Rules.Remove(limit) // an error would mean that it is already gone
	defined := maps.Clone(*s.defined.Load())
	delete(defined, limit)
	s.defined.Store(&defined)
}

// Style returns the style of the response headers of a dynamic limit.
func (s *Limits) Style(limit string) ratelimit.HeaderStyle { return (*s.dynamic.Load())[limit].style }

// Covered returns the dynamic limits that are not in force because a file has limits of the same
// names. The caller holds the turn.
func (s *Limits) Covered() []string { return s.covered }

// dynamicDoc returns the record with the dynamic limits.
func (s *Limits) dynamicDoc() *store.Doc[dynamicRecord] {
	return &store.Doc[dynamicRecord]{Store: s.node.Records, Key: dynamicKey, Try: editTry,
		Lost: func(err error) {
			s.log.Error("limits that were made are lost: make them again", "error", err)
		},
		Bus: s.node.Bus, Topic: LimitsTopic, Log: s.log,
	}
}

// editDynamic changes the record by calling edit, which reports whether there is anything to write.
// It publishes the change to the other nodes and data centers.
func (s *Limits) editDynamic(ctx context.Context, edit func(r *dynamicRecord) (bool, error)) error {
	var refused error // the error of edit
	written := false
	_, err := s.dynamicDoc().Edit(ctx, func(r *dynamicRecord) (bool, error) {
		written, refused = edit(r)
		return written && refused == nil, nil
	})
	switch {
	case err != nil:
		return notWritten(err)
	case refused == nil && written:
		s.node.PublishToDatacenters()
	}
	return refused
}

// dynamicKey is the key of the record with the dynamic limits: those that were made with the API
// while headgate runs. All nodes of a data center follow it. If a file has a limit of the same
// name, the one of the file is in force.
const dynamicKey = "limits-made"
