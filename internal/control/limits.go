package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
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

// taken identifies the state of a record that is in force here.
type taken struct {
	revision uint64
	newest   uint64                 // version of the newest change
	defined  *map[string]Definition // the definitions it was applied to
}

// isAfter reports whether the state in force is newer than a record that was read. A suspended
// former leader of the store may return an old record, and an old amount would be in force again. A
// recreated store counts its revisions from the beginning, but changes made in it have a newer
// version.
func (t *taken) isAfter(revision, newest uint64) bool {
	return revision < t.revision && newest <= t.newest
}

// newestOf returns the greatest version of some changes.
func newestOf(live map[string]limitChange) (newest uint64) {
	for _, x := range live {
		newest = max(newest, x.Version)
	}
	return newest
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

// Change stores a live change of a limit and puts it into force: first where the limit is decided,
// then here.
func (s *Limits) Change(ctx context.Context, name string, pairs map[string]string) error {
	keys := []string{}
	for key := range pairs {
		key, _, _ = strings.Cut(key, ".") // overrides.bob
		keys = append(keys, key)
	}
	s.note(ctx, "", name, keys, api.Actor(ctx))
	if _, made := (*s.dynamic.Load())[name]; made {
		return s.changeDynamic(ctx, name, pairs)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), ChangeWait)
	defer stop()
	f, ok := (*s.defined.Load())[name]
	if !ok { // a call defined it, so only this process has it
		return s.Rules.Update(name, func(l *ratelimit.Limit) error {
			return api.SetLimit(l, pairs)
		})
	}
	var err error
	if home := s.home(f); home != "" {
		err = s.changeAtHome(ctx, home, f, pairs)
	} else {
		err = s.editChanges(ctx, func(live map[string]limitChange) bool {
			live[name] = live[name].next(f, pairs)
			return true
		})
	}
	if errors.Is(err, errChanges) {
		return &api.NotPersistedError{
			Err:    err,
			Reason: "the change is not kept, and not in force: there are too many",
			Do:     "write overrides into the configuration, and reload: that drops the changes of a limit",
		}
	}
	if _, ok := errors.AsType[*api.NotPersistedError](err); err != nil && !ok {
		err = notWritten(err)
	}
	if err != nil {
		return err
	}
	if err = s.Take(ctx); err != nil {
		s.log.Warn("change of a limit is kept, and not in force here yet", "limit", name, "error", err)
	}
	return nil
}

// TakeNews puts the changes of other nodes into force here.
func (s *Limits) TakeNews(ctx context.Context) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.Take(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("changes of limits by another node not taken yet", "error", err)
	}
}

// Take puts the dynamic limits and the live changes into force here. The caller holds the turn or
// is the only goroutine.
func (s *Limits) Take(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, ChangeWait)
	defer stop()
	if err := s.takeDynamic(ctx); err != nil {
		return err
	}
	defined := s.defined.Load()
	if s.taken.defined != defined {
		if err := s.dropLimits(ctx, *defined); err != nil {
			return err
		}
	}
	live, revision, err := s.changes().Load(ctx)
	now := taken{revision, newestOf(live), defined}
	if err != nil || now == s.taken || s.taken.isAfter(revision, now.newest) {
		return err
	}
	for name, x := range live {
		f := (*defined)[name]
		if f.hash == "" || x.Of != f.hash {
			continue
		}
		if err := s.Rules.Update(name, func(l *ratelimit.Limit) error {
			*l = f.Limit
			return api.SetLimit(l, x.Pairs)
		}); err != nil {
			s.log.Warn("change of a limit not taken", "limit", name, "error", err)
		}
	}
	s.taken = now
	return nil
}

// dropLimits removes the live changes that were made under another definition than the one in force
// here. Nodes that still have the old file keep their state until they read the new one.
func (s *Limits) dropLimits(ctx context.Context, defined map[string]Definition) error {
	var dropped []string
	err := s.editChanges(ctx, func(live map[string]limitChange) (news bool) {
		dropped = nil
		for name, x := range live {
			f := defined[name]
			if f.hash == x.Of || f.hash == "" && IsEnvoys(name) { // not every node serves Envoy
				continue
			}
			if len(x.Pairs) > 0 {
				dropped = append(dropped, name)
			}
			y := limitChange{Of: f.hash, Pairs: map[string]string{}, Version: x.Version}
			if s.home(f) == "" {
				y = x.next(f, nil)
			}
			live[name], news = y, true
		}
		return news
	})
	if err == nil && len(dropped) > 0 {
		s.log.Info("live changes dropped: the file says something else of these limits now", "limits",
			dropped)
	}
	return err
}

// Follow puts the changes of other nodes into force here, until ctx ends.
func (s *Limits) Follow(ctx context.Context) error {
	if s.node.Bus == nil {
		return nil
	}
	stop, err := s.node.Bus.Serve(knowName+s.node.Config.Node, s.answerKnown)
	if err != nil {
		return err
	}
	defer stop()
	return store.Follow(ctx, s.node.Bus, LimitsTopic, FollowEvery, func([]byte) { s.TakeNews(ctx) })
}
