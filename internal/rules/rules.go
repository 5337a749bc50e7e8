package rules

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/slot"
)

// An Action is what becomes of a request.
type Action uint8

// The actions of rules. None is what Match says when no rule matches.
const (
	None   Action = iota
	Bypass        // it passes by the room and is not counted, whatever the room's state
	Deny          // it is refused
	Lane          // it waits in a lane of its own
)

// ParseAction reads an action by its name: bypass, deny or lane.
func ParseAction(name string) (Action, error) {
	for a := Bypass; a <= Lane; a++ {
		if name == a.String() {
			return a, nil
		}
	}
	return None, fmt.Errorf("unknown action %q: there are bypass, deny and lane", name)
}

func (a Action) String() string { return [...]string{"none", "bypass", "deny", "lane"}[a] }

const (
	// maxRules is how many rules a room may have. Chosen: 200 short ones cost some 5 µs.
	maxRules = 200
	// maxDescription is in bytes. Chosen.
	maxDescription = 500
)

// A Rule says what becomes of the requests that its expression matches.
type Rule struct {
	Action      Action
	Expression  string
	Description string
	Disabled    bool // checked, and asked about nothing
	// Lane is the lane in which who must wait waits: at most 32 of A-Z, a-z, 0-9, _ and -. Several
	// rules may lead into one. With other actions it is empty.
	Lane string
	// Share is how many of a hundred calls may go to the lane while others wait: 1 to 99, and
	// at most 99 for all lanes of a Set together. With other actions it is 0.
	Share int
}

// Env is what expressions may refer to.
type Env struct {
	Lists    map[string]*List // by name, without the $
	Crawlers *Crawlers        // nil: headgate.verified_crawler is not known
}

// A Verdict is what rules say about a request.
type Verdict struct {
	Action Action
	Rule   int // which one, from 0; -1 with None
	Lane   int // which one of Lanes, with Lane
}

// A Set is a list of rules, compiled. Its zero value matches nothing.
type Set struct {
	rules []compiled
	lanes []slot.Lane
	paths bool // some rule compares a path
}

type compiled struct {
	expression *node
	folded     *node // the same for paths whose cases are not told apart
	verdict    Verdict
}

// New compiles rules. Its error has all faults, each with the number of its rule from 1.
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

// lane is the lane of a rule, which may be one of a rule before.
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

// Lanes are those that the rules lead into.
func (s *Set) Lanes() []slot.Lane { return s.lanes }

// LaneName reports whether a lane may be named so.
func LaneName(name string) bool {
	ok := name != "" && len(name) <= slot.MaxLaneName
	for i := range len(name) {
		c := name[i]
		ok = ok && (c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z')
	}
	return ok
}

// A FieldError says what is wrong with a rule beside its expression.
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
	case r.Action < Bypass || r.Action > Lane:
		return wrong("action", "an action is missing: bypass, deny or lane")
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

// Match says what the first rule that matches wants. It does not block.
func (s *Set) Match(r Request) Verdict {
	in := input{Request: r}
	for i := range s.rules {
		if in.truth(s.rules[i].expression) {
			return s.rules[i].verdict
		}
	}
	return Verdict{Rule: -1}
}

// MatchAnyCase is Match for an origin that does not tell the cases of a path apart.
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

// An Expression is one that has been compiled.
type Expression struct{ root *node }

// Compile compiles an expression; its error is an *Error.
func Compile(expression string, env Env) (*Expression, error) {
	n, err := parse(expression, env)
	if err != nil {
		return nil, err
	}
	return &Expression{n}, nil
}

// Match reports whether the expression is true of r. It does not block.
func (e *Expression) Match(r Request) bool {
	in := input{Request: r}
	return in.truth(e.root)
}
