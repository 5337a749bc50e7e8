package quota

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/limit"
)

// mostUses is the maximum number of keys in one answer. Chosen: at 1,100 B per key they fit in one
// message.
const mostUses = 500

// usesWait is the timeout of a listing. Chosen.
const usesWait = 5 * time.Second

// ParseCursor parses the position in a list of keys: a shard and a place in it. "" is the
// beginning.
func ParseCursor(text string) (shard, from int, err error) {
	first, rest, _ := strings.Cut(cmp.Or(text, "0.0"), ".")
	shard, err = strconv.Atoi(first)
	from, err2 := strconv.Atoi(rest)
	if err != nil || err2 != nil || shard < 0 || shard >= Shards || from < 0 {
		return 0, 0, fmt.Errorf("no place among the keys: %q", text)
	}
	return shard, from, nil
}

// FormatCursor returns a position in the form that ParseCursor reads. It is "" at the end of the
// list.
func FormatCursor(shard, from int) string {
	if shard >= Shards {
		return ""
	}
	return fmt.Sprintf("%d.%d", shard, from)
}

// A usesAsk requests keys of a limit in one shard, from a place on.
type usesAsk struct {
	Limit string `json:"limit"`
	Shard byte   `json:"shard"`
	From  int    `json:"from"`
	Count int    `json:"count"`
}

type usesTold struct {
	Keys []limit.Usage `json:"keys"`
	Next int           `json:"next"` // 0: there are no more
}

// serveUses answers requests for the usage of the keys hosted here.
func (n *Node) serveUses() (stop func(), err error) {
	if n.host == nil {
		return func() {}, nil
	}
	return n.cfg.Bus.Serve(n.cfg.Prefix+"uses."+nameOf(n.host.self), n.host.tellUses)
}

func (h *Host) tellUses(_ context.Context, msg []byte) []byte {
	var q usesAsk
	if json.Unmarshal(msg, &q) != nil {
		return nil
	}
	keys, next, ok := h.ledger.uses(q.Limit, q.Shard, q.From, min(max(1, q.Count), mostUses))
	if !ok {
		return nil
	}
	b, err := json.Marshal(usesTold{keys, next})
	if err != nil {
		return nil
	}
	return b
}

// A usesAt is the start and the maximum length of a list of keys.
type usesAt struct{ shard, from, count int }

// usesAtOnce is the number of shards requested at the same time, because another data center may be
// far away. Chosen.
const usesAtOnce = 32

// uses returns keys of a limit that have usage; see Keys.Usage.
func (d *Client) uses(ctx context.Context, name string, at usesAt) (
	all []limit.Usage, nextShard, next int, err error,
) {
	ctx, stop := context.WithTimeout(ctx, usesWait)
	defer stop()
	for shard, from := at.shard, at.from; shard < Shards; {
		if len(all) >= at.count {
			return all, shard, 0, nil
		}
		got := make([]usesTold, min(usesAtOnce, Shards-shard))
		errs := make([]error, len(got))
		var wg sync.WaitGroup
		for i := range got {
			q := usesAsk{Limit: name, Shard: byte(shard + i), Count: at.count - len(all)}
			if i == 0 {
				q.From = from
			}
			wg.Go(func() { got[i], errs[i] = d.usesOf(ctx, q) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, 0, 0, err
		}
		for i := range got {
			if i > 0 && len(all)+len(got[i].Keys) > at.count {
				return all, shard + i, 0, nil // the next page begins with that shard
			}
			if all = append(all, got[i].Keys...); got[i].Next > 0 {
				return all, shard + i, got[i].Next, nil
			}
		}
		shard, from = shard+len(got), 0
	}
	return all, Shards, 0, nil
}

// usesOf requests keys from the host of one shard.
func (d *Client) usesOf(ctx context.Context, q usesAsk) (got usesTold, err error) {
	host := d.way.Host(q.Shard)
	if host == "" {
		return got, ErrUnreachable
	}
	msg, err := json.Marshal(q)
	if err != nil {
		return got, err
	}
	b, err := d.way.Request(ctx, "uses."+host, msg)
	if err != nil {
		return got, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return got, json.Unmarshal(b, &got)
}
