package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/store"
)

// limitsKey is the record of what was changed of limits while they were in use: all nodes of a
// data centre follow it, also one that begins later. limitName is told when it is another.
const (
	limitsKey = "limit-changes"
	limitName = "limit"
)

// mostChanges bounds that record. Chosen: data centres tell each other all of it, beside sealing
// keys and the changes of rooms (mostShare).
const mostChanges = 256 << 10

var errChanges = errors.New("live changes of limits are too many: write them into the configuration, and reload")

// A limitLive is what was changed of a limit, perhaps nothing any more. It is in force at each
// node whose file says the same of the limit as that of the node that wrote it. A node that
// begins or reloads with another file writes that nothing is changed: what the file has taken
// back does not come again with the old file.
type limitLive struct {
	Of    string            `json:"of"` // what the file said, as a hash
	Pairs map[string]string `json:"pairs"`
	// Version is when it was written, in ms since 1970, or one more than the version before. Of a
	// limit of all data centres only the home makes versions: there the greatest is in force.
	Version uint64 `json:"version,omitempty"`
}

// under is what is changed under a file.
func (x limitLive) under(f saidLimit) map[string]string {
	if x.Of != f.of {
		return nil
	}
	return x.Pairs
}

// next is a change of it, under a file.
func (x limitLive) next(f saidLimit, pairs map[string]string) limitLive {
	y := limitLive{Of: f.of, Pairs: map[string]string{}}
	y.Version = max(uint64(time.Now().UnixMilli()), x.Version+1)
	maps.Copy(y.Pairs, x.under(f))
	maps.Copy(y.Pairs, pairs)
	return y
}

// takenLimits is what was taken of the record.
type takenLimits struct {
	revision uint64
	newest   uint64                // version of the newest change
	said     *map[string]saidLimit // under which file
}

// isAfter reports whether what was taken is newer than a record: a leader of the store that stood still may
// tell what it knew, and an amount of before would be in force again. A store that was made anew counts
// its revisions from the beginning; what is changed then has a newer version.
func (t *takenLimits) isAfter(revision, newest uint64) bool {
	return revision < t.revision && newest <= t.newest
}

// newestOf is the version of the newest of changes.
func newestOf(live map[string]limitLive) (newest uint64) {
	for _, x := range live {
		newest = max(newest, x.Version)
	}
	return newest
}

// sayLimit is what the file says of a limit.
func sayLimit(c headgate.LimitConfig) saidLimit {
	zone, rule := "", c.Rule
	if rule.Zone != nil {
		zone, rule.Zone = rule.Zone.String(), nil
	}
	b := fmt.Appendf(nil, "%v %q %q %v %v %q %q %d",
		rule, zone, c.Unit, c.Shadow, c.Overrides, c.Scope, c.OnUnreachable, c.MaxKeys)
	if len(c.Reserved) > 0 {
		b = fmt.Appendf(b, " %v", c.Reserved)
	}
	sum := sha256.Sum256(b)
	return saidLimit{c, hex.EncodeToString(sum[:])}
}

// loadLimits is what was changed of limits, and its revision.
func (s *Server) loadLimits(ctx context.Context) (map[string]limitLive, uint64, error) {
	live := map[string]limitLive{}
	value, revision, err := s.reread(ctx, limitsKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return live, 0, nil
	case errors.Is(err, store.ErrDamaged):
		s.log.Error("changes of limits are lost: they are as the file says", "error", err)
		return live, 0, nil
	case err == nil:
		err = json.Unmarshal(value, &live)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", limitsKey, err)
	}
	return live, revision, nil
}

// editLimits changes the record by edit, which says whether there is anything to write, and
// tells the other nodes.
func (s *Server) editLimits(ctx context.Context, edit func(live map[string]limitLive) bool) error {
	return s.rewrite(ctx, limitsKey, func(ctx context.Context) ([]byte, uint64, error) {
		live, revision, err := s.loadLimits(ctx)
		if err != nil || !edit(live) {
			return nil, 0, err
		}
		value, err := json.Marshal(live)
		if err == nil && len(value) > mostChanges {
			err = errChanges
		}
		return value, revision, err
	})
}

// editTry bounds one try to read or write a record. Chosen: it takes milliseconds, and what is
// lost with a leader of the store is never answered.
const editTry = time.Second

// reread reads a record, again while it is not heard of.
func (s *Server) reread(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	for {
		try, stop := context.WithTimeout(ctx, editTry)
		value, revision, err = s.store.Load(try, key)
		late := try.Err() != nil
		stop()
		if err == nil || !late || ctx.Err() != nil {
			return value, revision, err
		}
	}
}

// rewrite changes a record of limits, and tells the other nodes. edit reads it, and says what is
// to be there instead, nil for nothing else; it is called again when another was faster, or a
// write is not heard of.
func (s *Server) rewrite(
	ctx context.Context, key string, edit func(ctx context.Context) ([]byte, uint64, error),
) error {
	for {
		try, stop := context.WithTimeout(ctx, editTry)
		value, revision, err := edit(try)
		if err == nil && value != nil {
			if _, err = s.store.CompareAndSwap(try, key, revision, value); err != nil {
				err = fmt.Errorf("write %s: %w", key, err)
			}
		}
		late := try.Err() != nil
		stop()
		switch {
		case err == nil && value == nil:
			return nil
		case err == nil:
			s.tellLimits()
			return nil
		case ctx.Err() != nil || !late && !errors.Is(err, store.ErrConflict):
			return err
		}
	}
}

// tellLimits tells the own nodes and the other data centres that something of limits is new.
func (s *Server) tellLimits() {
	if s.durable.bus == nil {
		return
	}
	if err := s.durable.bus.Tell(limitName, nil); err != nil {
		s.log.Warn("change of a limit not told to the other nodes: they find it themselves", "error", err)
	}
	s.durable.tellMade()
}

// notWritten is the error of a change that the store has not taken.
func notWritten(err error) error {
	return &api.NotKept{Err: err, Why: "the change could not be written: it is not in force, or not told so",
		Do: "look at the limit when the store answers (headgate cluster status), and say it again"}
}

// changeLimit keeps a change of a limit, and puts it into force: where the limit is decided,
// and then here.
func (s *Server) changeLimit(ctx context.Context, name string, pairs map[string]string) error {
	keys := []string{}
	for key := range pairs {
		key, _, _ = strings.Cut(key, ".") // overrides.bob
		keys = append(keys, key)
	}
	s.noteChange(ctx, "", name, keys, api.By(ctx))
	if _, made := (*s.limits.made.Load())[name]; made {
		return s.changeMade(ctx, name, pairs)
	}
	s.change.Lock()
	defer s.change.Unlock()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), changeWait)
	defer stop()
	f, ok := (*s.limits.said.Load())[name]
	if !ok { // a call has brought it along: nobody else has it
		return s.limits.rules.Update(name, func(l *headgate.LimitConfig) error {
			return api.SetLimit(l, pairs)
		})
	}
	var err error
	if home := s.limitHome(f); home != "" {
		err = s.changeAtHome(ctx, home, f, pairs)
	} else {
		err = s.editLimits(ctx, func(live map[string]limitLive) bool {
			live[name] = live[name].next(f, pairs)
			return true
		})
	}
	if errors.Is(err, errChanges) {
		return &api.NotKept{Err: err, Why: "the change is not kept, and not in force: there are too many",
			Do: "write overrides into the configuration, and reload: that drops the changes of a limit"}
	}
	if _, ok := errors.AsType[*api.NotKept](err); err != nil && !ok {
		err = notWritten(err)
	}
	if err != nil {
		return err
	}
	if err = s.takeLimits(ctx); err != nil {
		s.log.Warn("change of a limit is kept, and not in force here yet", "limit", name, "error", err)
	}
	return nil
}

// followLimits takes what other nodes have changed of limits.
func (s *Server) followLimits(ctx context.Context) {
	s.change.Lock()
	defer s.change.Unlock()
	if err := s.takeLimits(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("changes of limits by another node not taken yet", "error", err)
	}
}

// takeLimits puts what was made and changed of limits into force here. The caller holds change, or is
// alone.
func (s *Server) takeLimits(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, changeWait)
	defer stop()
	if err := s.takeMade(ctx); err != nil {
		return err
	}
	said := s.limits.said.Load()
	if s.limits.taken.said != said {
		if err := s.dropLimits(ctx, *said); err != nil {
			return err
		}
	}
	live, revision, err := s.loadLimits(ctx)
	now := takenLimits{revision, newestOf(live), said}
	if err != nil || now == s.limits.taken || s.limits.taken.isAfter(revision, now.newest) {
		return err
	}
	for name, x := range live {
		f := (*said)[name]
		if f.of == "" || x.Of != f.of {
			continue
		}
		if err := s.limits.rules.Update(name, func(l *headgate.LimitConfig) error {
			*l = f.LimitConfig
			return api.SetLimit(l, x.Pairs)
		}); err != nil {
			s.log.Warn("change of a limit not taken", "limit", name, "error", err)
		}
	}
	s.limits.taken = now
	return nil
}

// dropLimits drops what was changed under another file than that which is in force here now.
// Nodes whose file is still the old one go on as they are until they read the new one.
func (s *Server) dropLimits(ctx context.Context, said map[string]saidLimit) error {
	var dropped []string
	err := s.editLimits(ctx, func(live map[string]limitLive) (news bool) {
		dropped = nil
		for name, x := range live {
			f := said[name]
			if f.of == x.Of || f.of == "" && envoys(name) { // not each node answers Envoy
				continue
			}
			if len(x.Pairs) > 0 {
				dropped = append(dropped, name)
			}
			y := limitLive{Of: f.of, Pairs: map[string]string{}, Version: x.Version}
			if s.limitHome(f) == "" {
				y = x.next(f, nil)
			}
			live[name], news = y, true
		}
		return news
	})
	if err == nil && len(dropped) > 0 {
		s.log.Info("live changes dropped: the file says something else of these limits now", "limits", dropped)
	}
	return err
}
