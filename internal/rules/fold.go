package rules

import "regexp"

// foldPaths returns an expression that compares paths without regard to the case of A to Z, for
// origins that ignore it. It returns n itself if n compares no path.
func foldPaths(n *node) *node {
	if len(n.args) == 0 {
		return n
	}
	x := *n
	x.args = make([]*node, len(n.args))
	changed := false
	for i, a := range n.args {
		x.args[i] = foldPaths(a)
		changed = changed || x.args[i] != a
	}
	if n.args[0].isPath() && n.comparesText() {
		x.args[0], changed = &node{op: opLower, kind: isText, args: n.args[:1]}, true
		x.foldLiterals()
	}
	if !changed {
		return n
	}
	return &x
}

// isPath reports whether n is a field that contains a path, or lower or upper of one.
func (n *node) isPath() bool {
	switch n.op {
	case opLower, opUpper:
		return n.args[0].isPath()
	case opTextField:
		return n.field >= fieldURI && n.field <= fieldRawPath && n.field != fieldQuery
	}
	return false
}

func (n *node) comparesText() bool { return n.op >= opStarts && n.op <= opInTexts }

// foldLiterals converts the operands of a comparison to lower case. n is a copy.
func (n *node) foldLiterals() {
	n.text = lower(n.text)
	if n.pattern != nil {
		n.pattern = regexp.MustCompile("(?i:" + n.pattern.String() + ")")
	}
	if w := n.wildcard; w != nil && !w.fold {
		n.wildcard = &wildcard{fold: true}
		for _, part := range w.parts {
			n.wildcard.parts = append(n.wildcard.parts, lower(part))
		}
	}
	if n.texts != nil {
		texts := make(map[string]bool, len(n.texts))
		for text := range n.texts {
			texts[lower(text)] = true
		}
		n.texts = texts
	}
}
