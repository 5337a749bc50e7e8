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

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

// limitsKey is the record of what was changed of limits while they were in use: all nodes of a
// data centre follow it, also one that begins later. LimitsTopic is told when it is another.
const (
	limitsKey   = "limit-changes"
	LimitsTopic = "limit"
)

// mostChanges bounds that record. Chosen: data centres tell each other all of it, beside sealing
// keys and the changes of rooms (mostShare).
const mostChanges = 256 << 10

var errChanges = errors.New(
	"live changes of limits are too many: write them into the configuration, and reload",
)

// Limits are the rate limits of the process: those of files, their changes, and the dynamic ones,
// which were made while headgate ran.
type Limits struct {
	Rules *headgate.Limiter

	node *node.Node
	log  *slog.Logger
	turn *chanmutex.Mutex
	note Note

	defined atomic.Pointer[map[string]Definition]
	taken   taken // guarded by turn

	dynamic      atomic.Pointer[map[string]inForce] // beside what files say
	takenDynamic taken                              // guarded by turn
	dynamicUpTo  [2]uint64                          // versions of takenDynamic: own, all
	covered      []string                           // dynamic, but what files say is in force; by turn
}

// A Note notes who is about to change a room, or a limit.
type Note func(ctx context.Context, room, limit string, keys []string, by string)

// NewLimits returns the limits of a configuration. t is the turn of all changes of the process.
func NewLimits(
	rules *headgate.Limiter,
	cfg *config.Config,
	n *node.Node,
	t *chanmutex.Mutex,
	note Note,
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

// A limitChange is what was changed of a limit, perhaps nothing any more. It is in force at each
// node whose file says the same of the limit as that of the node that wrote it. A node that
// begins or reloads with another file writes that nothing is changed: what the file has taken
// back does not come again with the old file.
type limitChange struct {
	Of    string            `json:"of"` // what the file said, as a hash
	Pairs map[string]string `json:"pairs"`
	// Version is when it was written, in ms since 1970, or one more than the version before. Of a
	// limit of all data centres only the home makes versions: there the greatest is in force.
	Version uint64 `json:"version,omitempty"`
}

// under is what is changed under a file.
func (x limitChange) under(f Definition) map[string]string {
	if x.Of != f.hash {
		return nil
	}
	return x.Pairs
}

// next is a change of it, under a file.
func (x limitChange) next(f Definition, pairs map[string]string) limitChange {
	y := limitChange{Of: f.hash, Pairs: map[string]string{}}
	y.Version = max(uint64(time.Now().UnixMilli()), x.Version+1)
	maps.Copy(y.Pairs, x.under(f))
	maps.Copy(y.Pairs, pairs)
	return y
}

// taken is what was taken of the record.
type taken struct {
	revision uint64
	newest   uint64                 // version of the newest change
	defined  *map[string]Definition // under which file
}

// isAfter reports whether what was taken is newer than a record: a leader of the store that stood still may
// tell what it knew, and an amount of before would be in force again. A store that was made anew counts
// its revisions from the beginning; what is changed then has a newer version.
func (t *taken) isAfter(revision, newest uint64) bool {
	return revision < t.revision && newest <= t.newest
}

// newestOf is the version of the newest of changes.
func newestOf(live map[string]limitChange) (newest uint64) {
	for _, x := range live {
		newest = max(newest, x.Version)
	}
	return newest
}

// changes is the record of what was changed of limits.
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

// editChanges changes the record by edit, which reports whether there is anything to write, and
// tells the other nodes and data centers.
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
		s.node.TellDatacenters()
	}
	return err
}

// editTry limits one attempt to read or write a record. Chosen: it takes milliseconds, and what
// is lost with a leader of the store is never answered.
const editTry = time.Second

// notWritten is the error of a change that the store has not taken.
func notWritten(err error) error {
	return &api.NotPersistedError{
		Err:    err,
		Reason: "the change could not be written: it is not in force, or not told so",
		Do:     "look at the limit when the store answers (headgate cluster status), and say it again",
	}
}

// Change keeps a change of a limit, and puts it into force: where the limit is decided,
// and then here.
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
	if !ok { // a call has brought it along: nobody else has it
		return s.Rules.Update(name, func(l *headgate.LimitConfig) error {
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

// TakeNews takes what other nodes have changed of limits.
func (s *Limits) TakeNews(ctx context.Context) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.Take(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("changes of limits by another node not taken yet", "error", err)
	}
}

// Take puts what was made and changed of limits into force here. The caller holds change, or is
// alone.
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
		if err := s.Rules.Update(name, func(l *headgate.LimitConfig) error {
			*l = f.LimitConfig
			return api.SetLimit(l, x.Pairs)
		}); err != nil {
			s.log.Warn("change of a limit not taken", "limit", name, "error", err)
		}
	}
	s.taken = now
	return nil
}

// dropLimits drops what was changed under another file than that which is in force here now.
// Nodes whose file is still the old one go on as they are until they read the new one.
func (s *Limits) dropLimits(ctx context.Context, defined map[string]Definition) error {
	var dropped []string
	err := s.editChanges(ctx, func(live map[string]limitChange) (news bool) {
		dropped = nil
		for name, x := range live {
			f := defined[name]
			if f.hash == x.Of || f.hash == "" && IsEnvoys(name) { // not each node answers Envoy
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
		s.log.Info(
			"live changes dropped: the file says something else of these limits now",
			"limits",
			dropped,
		)
	}
	return err
}

// Follow takes what other nodes have changed of limits, until ctx ends.
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
