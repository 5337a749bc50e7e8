package demo

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"

	"github.com/headgate/headgate/internal/adminclient"
)

// How the keys u and d change the limit of sessions at once.
const (
	limitStep            = 5
	limitLeast, limitTop = 5, 100
)

// An alone is the demo of a room that is one process.
type alone struct {
	*demo
	*room
	node     *node
	operator *adminclient.Client // with a token; nil: none yet
	last     state               // the last one that is known
}

func newAlone(d *demo, g *ground) (*alone, error) {
	d.judge.slack = aloneSlack
	a := &alone{demo: d, room: &room{}}
	var err error
	a.node, err = a.add(g, roomName, "the room", nil)
	return a, err
}

// launch waits until the room is ready: there is nothing to see meanwhile.
func (a *alone) launch(ctx context.Context) error { return a.node.start(ctx) }

func (a *alone) open(context.Context) error { return nil }

func (a *alone) follow(context.Context) {}

func (a *alone) key(ctx context.Context, k byte) {
	switch k {
	case 'k', 'K':
		a.act(ctx, a.kill)
	case 'u', 'U':
		a.act(ctx, func(ctx context.Context) error { return a.limit(ctx, +limitStep) })
	case 'd', 'D':
		a.act(ctx, func(ctx context.Context) error { return a.limit(ctx, -limitStep) })
	case ' ':
		a.act(ctx, a.hold)
	}
}

func (a *alone) killByItself(ctx context.Context) bool { return a.act(ctx, a.kill) }

// kill kills the room as a power failure would, and starts it again.
func (a *alone) kill(ctx context.Context) error {
	k := a.judge.killed("")
	if err := a.node.kill(); err != nil {
		return err
	}
	if err := a.node.start(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	a.judge.back(k)
	return nil
}

// limit changes the number of sessions at once, while the room runs.
func (a *alone) limit(ctx context.Context, by int) error {
	_, _, now := a.node.now()
	n := min(max(now.AtOnce+by, limitLeast), limitTop)
	if now.AtOnce == 0 || n == now.AtOnce {
		return nil
	}
	if n > now.AtOnce { // the room may apply it before it answers
		a.shop.limitTo(n)
	}
	if a.change(ctx, map[string]any{"total_active_users": n}) && n < now.AtOnce {
		a.shop.limitTo(n)
	}
	return nil
}

// hold stops the calls, or resumes them.
func (a *alone) hold(ctx context.Context) error {
	_, _, now := a.node.now()
	a.change(ctx, map[string]any{"queue_all": !now.QueueAll})
	return nil
}

// change sets keys of the running room. A rejected change does not end the demo.
func (a *alone) change(ctx context.Context, keys map[string]any) bool {
	ctx, stop := context.WithTimeout(ctx, tellTimeout)
	defer stop()
	err := a.login()
	var s state
	if err == nil {
		err = a.operator.Do(ctx, http.MethodPatch, a.node.about, keys, &s)
	}
	if err != nil {
		a.remark(err.Error())
		return false
	}
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	a.node.says.state = s
	return true
}

// login creates a token, as an operator would.
func (a *alone) login() error {
	if a.operator != nil {
		return nil
	}
	cmd := a.node.command("token", "create", "--scope", "write", "--name", "demo", "--data", a.node.data())
	out, err := cmd.CombinedOutput()
	token := regexp.MustCompile(`\bhg_[A-Za-z0-9_-]+`).FindString(string(out))
	if err != nil || token == "" {
		return fmt.Errorf("make a token: %v %s", err, bytes.TrimSpace(out))
	}
	a.operator = &adminclient.Client{URL: a.node.admin.URL, Token: token}
	return nil
}

// show adds the room to a scene. While it is down, its last state is shown.
func (a *alone) show(s *scene) {
	is, _, now := a.node.now()
	if s.Up = is == up; s.Up {
		a.last = now.state
	}
	s.State = a.last
}
