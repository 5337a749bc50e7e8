// Package adminclient talks to the operators' address of a running headgate. Its errors say what
// failed and what to do. A [Client] may be used by many goroutines at once.
package adminclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
)

const (
	answerWait = 70 * time.Second // longer than the longest reload
	maxAnswer  = 64 << 20         // chosen: 1,000 rooms are 1 MB
)

// A Client sends requests as one operator.
type Client struct {
	URL   string // without a slash at its end
	Token string // "": none
}

// A Refusal is a problem document from headgate's API.
type Refusal struct {
	Status    int             `json:"status"`
	Detail    string          `json:"detail"`
	Code      string          `json:"code"`
	Told      string          `json:"hint"`
	RequestID string          `json:"request_id"`
	Faults    []*config.Fault `json:"faults"`
}

func (r *Refusal) Error() string {
	if r.Status >= http.StatusInternalServerError {
		return r.Detail + " (request " + r.RequestID + ")"
	}
	return r.Detail
}

// Hint returns what to do.
func (r *Refusal) Hint() string { return r.Told }

// Do sends in as JSON, if it is not nil, and decodes the answer into out, which may be nil.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	return c.Send(ctx, method, path, "application/json", body, out)
}

// Send sends a body of this type, and decodes the answer into out, which may be nil.
func (c *Client) Send(ctx context.Context, method, path, kind string, body []byte, out any) error {
	ctx, stop := context.WithTimeout(ctx, answerWait)
	defer stop()
	res, err := c.begin(ctx, method, path, kind, body)
	if err != nil {
		return err
	}
	return c.read(res, out)
}

// Copy copies an answer of any length. A million jobs take longer than [Client.Send] waits.
func (c *Client) Copy(ctx context.Context, path string, to io.Writer) error {
	res, err := c.begin(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return c.read(res, nil)
	}
	defer res.Body.Close()
	if _, err := io.Copy(to, res.Body); err != nil {
		return fmt.Errorf("the answer did not arrive completely: %w", err)
	}
	return nil
}

func (c *Client) begin(
	ctx context.Context, method, path, kind string, body []byte,
) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "headgate")
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	// The token must not follow a redirect to another address.
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	res, err := client.Do(r)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return res, nil
}

// unreachable is the error for a headgate that cannot be reached.
func (c *Client) unreachable(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the address is already in the message
	}
	return &hint.Error{Text: "no headgate answers at " + c.URL, Err: err,
		Do: "start headgate run, or name its admin_listen: --admin http://HOST:PORT"}
}

// read decodes an answer into out.
func (c *Client) read(res *http.Response, out any) error {
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return c.unreachable(err)
	}
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch {
	case res.StatusCode/100 == 2 && kind == "application/json":
		if out == nil {
			return nil
		}
		return json.Unmarshal(b, out)
	case kind == "application/problem+json":
		p := &Refusal{}
		if err := json.Unmarshal(b, p); err == nil {
			return p
		}
	}
	return c.unreachable(fmt.Errorf("the answer %s is not one of headgate's operators' address", res.Status))
}
