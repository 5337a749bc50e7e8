package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// A state is the room as the admin address reports it.
type state struct {
	Active   int  `json:"active_users"`
	Waiting  int  `json:"waiting_users"`
	AtOnce   int  `json:"total_active_users"`
	PerMin   int  `json:"new_users_per_minute"`
	QueueAll bool `json:"queue_all"`
}

// adminTimeout is short because the picture must not wait for an answer.
const adminTimeout = time.Second

func adminClient(addr string) *http.Client {
	return &http.Client{Timeout: adminTimeout, Transport: &http.Transport{
		DialContext: dialer(addr), MaxIdleConnsPerHost: 2,
	}}
}

// An operator talks to the admin address of a room.
type operator struct {
	gate   *gate
	client *http.Client
	token  string
}

func newOperator(g *gate) *operator { return &operator{gate: g, client: adminClient(g.admin)} }

// look requests the state of the room.
func (o *operator) look(ctx context.Context) (state, error) {
	var body struct {
		Rooms []state `json:"rooms"`
	}
	if err := o.do(ctx, http.MethodGet, "/v1/rooms", nil, &body); err != nil {
		return state{}, err
	}
	if len(body.Rooms) != 1 {
		return state{}, fmt.Errorf("the room tells of %d rooms", len(body.Rooms))
	}
	return body.Rooms[0], nil
}

// change sets keys of the running room.
func (o *operator) change(ctx context.Context, keys map[string]any) (state, error) {
	if o.token == "" {
		if err := o.login(); err != nil {
			return state{}, err
		}
	}
	var s state
	err := o.do(ctx, http.MethodPatch, "/v1/rooms/"+roomName, keys, &s)
	return s, err
}

// login creates a token, as an operator would.
func (o *operator) login() error {
	cmd := o.gate.command("token", "create", "--scope", "write", "--name", "demo",
		"--data", o.gate.data())
	out, err := cmd.CombinedOutput()
	o.token = regexp.MustCompile(`\bhg_[A-Za-z0-9_-]+`).FindString(string(out))
	if err != nil || o.token == "" {
		return fmt.Errorf("make a token: %v %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (o *operator) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader = http.NoBody
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+o.gate.admin+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+o.token)
	}
	resp, err := o.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status,
			strings.TrimSpace(string(text)))
	}
	return json.Unmarshal(text, out)
}
