package quota

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/store"
)

// chartWait is the timeout for reading or writing the shard map. Chosen.
const chartWait = 2 * time.Second

// A ShardMap says which process hosts each shard, and which one is its standby. It is one record,
// changed only by compare-and-swap: if two processes want a shard, one of them loses.
type ShardMap struct {
	Shards [Shards]Assignment `json:"shards"`
	Moves  uint64             `json:"moves,omitempty"` // moves of the home when this shard map began

	rev uint64
}

// An Assignment is the place of one shard. A process is identified by its name and its life.
type Assignment struct {
	Host      string `json:"host,omitempty"`
	Standby   string `json:"standby,omitempty"`
	UsageLost bool   `json:"lost,omitempty"`  // the usage of its keys is lost
	Moved     bool   `json:"moved,omitempty"` // it was counted in another data center
	HasCopy   string `json:"kept,omitempty"`  // the store has a copy: see kept.go
}

// processOf returns the identifier of a process. A life is never reused.
func processOf(name string, life uint64) string { return fmt.Sprintf("%s~%x", name, life) }

// nameOf returns the name in the identifier of a process.
func nameOf(process string) string {
	name, _, _ := strings.Cut(process, "~")
	return name
}

// shardOf returns the shard of a key. It is the same in all processes and at all times.
func shardOf(limit, key string) byte {
	b := make([]byte, 0, 128)
	return sha256.Sum256(append(append(append(b, limit...), 0), key...))[0]
}

// host returns the name of the process that hosts a shard, or "".
func (c *ShardMap) host(shard byte) string {
	if c == nil {
		return ""
	}
	return nameOf(c.Shards[shard].Host)
}

// load reads the shard map. If there is none in the store, it returns a new one.
func load(ctx context.Context, s store.Store, name string) (*ShardMap, error) {
	ctx, stop := context.WithTimeout(ctx, chartWait)
	defer stop()
	b, rev, err := s.Load(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return &ShardMap{}, nil
	}
	c := &ShardMap{rev: rev}
	if err == nil {
		err = json.Unmarshal(b, c)
	}
	return c, err
}

// save writes the shard map, unless another process has written it since it was read.
func (c *ShardMap) save(ctx context.Context, s store.Store, name string) error {
	ctx, stop := context.WithTimeout(ctx, chartWait)
	defer stop()
	b, err := json.Marshal(c)
	if err == nil {
		c.rev, err = s.CompareAndSwap(ctx, name, c.rev, b)
	}
	return err
}

// A toldChart is the shard map as one process sends it to another.
type toldChart struct {
	ShardMap
	Rev uint64 `json:"rev"`
}

// told returns the message with a shard map, or nil for none.
func (c *ShardMap) told() []byte {
	if c == nil {
		return nil
	}
	b, err := json.Marshal(toldChart{*c, c.rev})
	if err != nil {
		return nil
	}
	return b
}

// heardChart parses a shard map from a message. It returns nil if there is none.
func heardChart(b []byte) *ShardMap {
	var c toldChart
	if len(b) == 0 || json.Unmarshal(b, &c) != nil || c.Rev == 0 {
		return nil
	}
	c.rev = c.Rev
	return &c.ShardMap
}

// ranked returns the processes in their order of preference as host of a shard: see cluster.Score.
func ranked(shard int, processes []string) []string {
	score := func(p string) uint64 { return cluster.Score(strconv.Itoa(shard), nameOf(p)) }
	all := slices.Clone(processes)
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(b, a))
	})
	return all
}
