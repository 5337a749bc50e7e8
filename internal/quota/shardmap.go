package quota

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// chartWait bounds a reading or writing of the chart. Chosen.
const chartWait = 2 * time.Second

// A Chart says which process hosts each shard, and which one stands by. It is one record,
// which only compare-and-swap changes: of two who both want a shard one loses.
type ShardMap struct {
	Shards [Shards]Assignment `json:"shards"`
	Moves  uint64             `json:"moves,omitempty"` // of the home, when this chart began

	rev uint64
}

// A Spot is where a shard is. A process is its name and its life.
type Assignment struct {
	Host      string `json:"host,omitempty"`
	Standby   string `json:"standby,omitempty"`
	UsageLost bool   `json:"lost,omitempty"`  // what its keys have used is known to nobody
	Moved     bool   `json:"moved,omitempty"` // it was counted in another data centre
	HasCopy   string `json:"kept,omitempty"`  // the store has a copy: see kept.go
}

// processOf names a process: a life is never used twice.
func processOf(name string, life uint64) string { return fmt.Sprintf("%s~%x", name, life) }

// nameOf is the name of a process.
func nameOf(process string) string {
	name, _, _ := strings.Cut(process, "~")
	return name
}

// shardOf is the shard of a key: the same for all processes at all times.
func shardOf(limit, key string) byte {
	b := make([]byte, 0, 128)
	return sha256.Sum256(append(append(append(b, limit...), 0), key...))[0]
}

// host is the name of the process that hosts a shard, "" for none.
func (c *ShardMap) host(shard byte) string {
	if c == nil {
		return ""
	}
	return nameOf(c.Shards[shard].Host)
}

// load reads the chart; one that was never written is new.
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

// save writes the chart if nobody has since it was read.
func (c *ShardMap) save(ctx context.Context, s store.Store, name string) error {
	ctx, stop := context.WithTimeout(ctx, chartWait)
	defer stop()
	b, err := json.Marshal(c)
	if err == nil {
		c.rev, err = s.CompareAndSwap(ctx, name, c.rev, b)
	}
	return err
}

// toldChart is the chart as one process tells it to another.
type toldChart struct {
	ShardMap
	Rev uint64 `json:"rev"`
}

// told is a chart to be told, nil for none.
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

// heardChart is a chart that was told, nil for none.
func heardChart(b []byte) *ShardMap {
	var c toldChart
	if len(b) == 0 || json.Unmarshal(b, &c) != nil || c.Rev == 0 {
		return nil
	}
	c.rev = c.Rev
	return &c.ShardMap
}

// ranked are processes in the order in which they are to host a shard (highest random
// weight hashing, Thaler and Ravishankar 1998): one that goes moves only its own.
func ranked(shard int, processes []string) []string {
	score := func(p string) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d\x00%s", shard, nameOf(p))
		x := h.Sum64() // mixed as in MurmurHash3
		x = (x ^ x>>33) * 0xff51afd7ed558ccd
		x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
		return x ^ x>>33
	}
	all := slices.Clone(processes)
	slices.SortFunc(all, func(a, b string) int {
		if x, y := score(a), score(b); x > y || x == y && a > b {
			return -1
		}
		return 1
	})
	return all
}
