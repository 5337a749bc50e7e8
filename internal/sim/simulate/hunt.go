package simulate

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/sim/lending"
)

// A huntFlags holds the flags of --hunt and --replay.
type huntFlags struct {
	cases  int
	seed   uint64
	replay string
	again  lending.Case // the case to replay
}

func (h *huntFlags) define(flags *flag.FlagSet) {
	flags.IntVar(&h.cases, "hunt", 0, "")
	flags.Uint64Var(&h.seed, "hunt-seed", 1, "")
	flags.StringVar(&h.replay, "replay", "", "")
}

func (h *huntFlags) asked() bool { return h.cases != 0 || h.replay != "" }

// check reports faults of the flags, and other flags that cannot be combined with a hunt.
func (h *huntFlags) check(given map[string]string, fault func(bad bool, flag, problem, hint string)) {
	_, hunt := given["hunt"]
	_, replay := given["replay"]
	_, seed := given["hunt-seed"]
	fault(hunt && h.cases < 1, "hunt", "is not more than 0", "say how many cases, such as 1000")
	fault(hunt && replay, "replay", "cannot stand beside --hunt", "leave one out")
	fault(seed && !hunt, "hunt-seed", "needs --hunt", "add --hunt 1000")
	if replay {
		var err error
		if h.again, err = lending.ParseCase(h.replay); err != nil {
			fault(true, "replay", err.Error(), "copy the case as a hunt printed it")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		own := slices.Contains([]string{"hunt", "hunt-seed", "replay", "json"}, name)
		fault((hunt || replay) && !own, name, "cannot stand beside --hunt or --replay", "leave it out")
	}
}

// A huntVerdict is the result of a hunt as JSON.
type huntVerdict struct {
	Cases  int    `json:"cases"`
	Broken string `json:"broken"` // the broken promise; "": none
	Case   string `json:"case,omitempty"`
}

// run hunts, or replays one case. It reports whether all promises were kept.
func (h *huntFlags) run(ctx context.Context, stdout io.Writer, tell *teller, asJSON bool) (bool, error) {
	v := huntVerdict{Cases: 1}
	var err error
	if h.replay != "" {
		if v.Broken, err = h.again.Try(ctx); v.Broken != "" {
			v.Case = h.again.String()
		}
	} else {
		var f *lending.Finding
		say := tell.of("hunting")
		f, err = lending.Hunt(ctx, lending.HuntOptions{N: h.cases, Seed: h.seed,
			Progress: func(done int) { say(float64(done) / float64(h.cases)) }})
		v.Cases = h.cases
		if f != nil {
			v = huntVerdict{f.Tried, f.Broken, f.Case.String()}
		}
	}
	tell.clear()
	if err != nil {
		return false, err
	}
	kept, cases := v.Broken == "", "1 case"
	if v.Cases != 1 {
		cases = fmt.Sprintf("%d cases", v.Cases)
	}
	switch {
	case asJSON:
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		err = enc.Encode(v)
	case !kept:
		_, err = fmt.Fprintf(stdout, "%s, a promise broken: %s\n  headgate simulate --replay %s\n",
			cases, v.Broken, v.Case)
	default:
		_, err = fmt.Fprintf(stdout, "%s, no promise broken\n", cases)
	}
	return kept, err
}
