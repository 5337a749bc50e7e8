package rules

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/slot"
)

// An Action is what happens to a request.
type Action uint8

// These are the actions of rules. Match returns None when no rule matches.
const (
	None      Action = iota
	Bypass           // bypasses the room uncounted, in every state of the room
	Deny             // is rejected
	Lane             // waits in a lane
	Challenge        // has a challenge before its place counts
)

// ParseAction parses the name of an action: bypass, deny, lane or challenge.
func ParseAction(name string) (Action, error) {
	for a := Bypass; a <= Challenge; a++ {
		if name == a.String() {
			return a, nil
		}
	}
	return None, fmt.Errorf("unknown action %q: there are bypass, deny, lane and challenge", name)
}

func (a Action) String() string {
	return [...]string{"none", "bypass", "deny", "lane", "challenge"}[a]
}

const (
	// maxRules is the maximum number of rules of a room. Chosen: 200 short ones cost about 5 µs.
	maxRules = 200
	// maxDescription is the maximum length in bytes. Chosen.
	maxDescription = 500
)

// A Rule defines what happens to the requests that its expression matches.
type Rule struct {
	Action      Action
	Expression  string
	Description string
	Disabled    bool // checked, but never matches
	// Lane is the name of the lane for visitors that must wait: at most 32 of A-Z, a-z, 0-9, _ and
	// -. Several rules may use the same lane. With other actions it is empty.
	Lane string
	// Share is the percentage of calls that go to the lane while others wait: 1 to 99, and at most
	// 99 for all lanes of a Set together. With other actions it is 0.
	Share int
}

// An Env holds what expressions may refer to.
type Env struct {
	Lists    map[string]*List // by name, without the $
	Crawlers *Crawlers        // nil: no headgate.verified_crawler
}

// A Verdict is the result of the rules for a request.
type Verdict struct {
	Action Action
	Rule   int // index from 0; -1 with None
	Lane   int // index into Lanes, with Lane
}

// A Set is a compiled list of rules. The zero value matches nothing.
type Set struct {
	rules []compiled
	lanes []slot.Lane
	paths bool // some rule compares a path
}

type compiled struct {
	expression *node
	folded     *node // the same, ignoring the case of paths
	verdict    Verdict
}

// New compiles rules. Its error lists all faults, each with the number of its rule, from 1.
func New(rules []Rule, env Env) (*Set, error) {
	if len(rules) > maxRules {
		return nil, fmt.Errorf("%d rules; %d are the most: join some with or", len(rules), maxRules)
	}
	s := &Set{}
	var errs []error
	for i := range rules {
		r := &rules[i]
		n, err := parse(r.Expression, env)
		if err = errors.Join(err, r.check()); err != nil {
			errs = append(errs, fmt.Errorf("rule %d: %w", i+1, err))
			continue
		}
		if r.Disabled {
			continue
		}
		v := Verdict{Action: r.Action, Rule: i}
		if r.Action == Lane {
			if v.Lane, err = s.lane(r); err != nil {
				errs = append(errs, fmt.Errorf("rule %d: %w", i+1, err))
			}
		}
		c := compiled{n, foldPaths(n), v}
		s.rules, s.paths = append(s.rules, c), s.paths || c.folded != n
	}
	if err := slot.CheckLanes(s.lanes); err != nil {
		errs = append(errs, err)
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// lane returns the index of the rule's lane, which an earlier rule may have added.
func (s *Set) lane(r *Rule) (int, error) {
	i := slices.IndexFunc(s.lanes, func(x slot.Lane) bool { return x.Name == r.Lane })
	switch {
	case i < 0:
		s.lanes = append(s.lanes, slot.Lane{Name: r.Lane, Share: r.Share})
		return len(s.lanes) - 1, nil
	case s.lanes[i].Share != r.Share:
		return i, wrong("share", "the lane %s has a share of %d here and %d in a rule before: write the same",
			r.Lane, r.Share, s.lanes[i].Share)
	}
	return i, nil
}

// Lanes returns the lanes of all rules.
func (s *Set) Lanes() []slot.Lane { return s.lanes }

// LaneName reports whether name is valid for a lane.
func LaneName(name string) bool {
	ok := name != "" && len(name) <= slot.MaxLaneName
	for i := range len(name) {
		c := name[i]
		ok = ok && (c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z')
	}
	return ok
}

// A FieldError describes a fault of a rule outside its expression.
type FieldError struct {
	Field   string // action, description, lane or share
	Problem string
}

func (e *FieldError) Error() string { return e.Problem }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

func (r *Rule) check() error {
	switch {
	case r.Action < Bypass || r.Action > Challenge:
		return wrong("action", "an action is missing: bypass, deny, lane or challenge")
	case r.Action == Lane && !LaneName(r.Lane):
		return wrong("lane", "a lane named %q: take 1 to 32 of A-Z, a-z, 0-9, _ and -", r.Lane)
	case r.Action == Lane && (r.Share < 1 || r.Share > 99):
		return wrong("share", "a lane with a share of %d: take 1 to 99, of a hundred calls", r.Share)
	case r.Action != Lane && r.Lane != "":
		return wrong("lane", "%s with a lane: only the action lane has one", r.Action)
	case r.Action != Lane && r.Share != 0:
		return wrong("share", "%s with a share: only the action lane has one", r.Action)
	case len(r.Description) > maxDescription:
		return wrong("description", "a description of %d bytes: %d are the most", len(r.Description), maxDescription)
	}
	return nil
}

// Match returns the action of the first rule that matches. It does not block.
func (s *Set) Match(r Request) Verdict {
	in := input{Request: r}
	for i := range s.rules {
		if in.truth(s.rules[i].expression) {
			return s.rules[i].verdict
		}
	}
	return Verdict{Rule: -1}
}

// MatchAnyCase is Match for an origin that ignores the case of paths.
func (s *Set) MatchAnyCase(r Request) Verdict {
	in := input{Request: r}
	for i := range s.rules {
		if in.truth(s.rules[i].folded) {
			return s.rules[i].verdict
		}
	}
	return Verdict{Rule: -1}
}

// ComparesPaths reports whether MatchAnyCase can differ from Match.
func (s *Set) ComparesPaths() bool { return s.paths }

// An Expression is a compiled expression.
type Expression struct{ root *node }

// Compile compiles an expression; its error is an *Error.
func Compile(expression string, env Env) (*Expression, error) {
	n, err := parse(expression, env)
	if err != nil {
		return nil, err
	}
	return &Expression{n}, nil
}
