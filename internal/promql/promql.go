// Package promql asks a Prometheus server for one number: the load of an origin.
//
// # The promise
//
// A query sends one request and follows no redirect: the server of the configuration is asked and no
// other. An answer is at most [MostAnswer] bytes. Whatever is no number from 0 on, such as an empty
// result or NaN, is an error that says so. Errors contain nothing but what the operator has to know: an
// answer of the server is not repeated.
//
// # Concurrency and cost
//
// A [Client] may be used by many goroutines at once. It opens a connection for each query.
package promql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// MostAnswer is how many bytes an answer may have. Chosen: one number takes 200, with its labels.
const MostAnswer = 64 << 10

// Wait is how long an answer may take. Chosen: less than the time between two queries.
const Wait = 2 * time.Second

// A Client asks servers.
type Client struct{ http http.Client }

// New returns a Client. dial opens its connections; nil: the dialer of package net.
func New(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Client {
	return &Client{http.Client{
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// An answer is what the HTTP API returns (prometheus.io/docs/prometheus/latest/querying/api).
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Data      struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

// Number returns the result of a query. base is the server's URL without /api.
func (c *Client) Number(ctx context.Context, base *url.URL, query string) (float64, error) {
	ctx, stop := context.WithTimeout(ctx, Wait)
	defer stop()
	u := base.JoinPath("api/v1/query")
	u.RawQuery = url.Values{"query": {query}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, errors.New("the URL of the server cannot be used")
	}
	res, err := c.http.Do(r)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the query
	}
	if err != nil {
		return 0, fmt.Errorf("the server does not answer: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, MostAnswer+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("the server does not answer: %w", err)
	case len(body) > MostAnswer:
		return 0, fmt.Errorf("the answer has more than %d bytes: aggregate it to one number", MostAnswer)
	}
	var a answer
	bad := json.Unmarshal(body, &a) != nil
	switch {
	case !bad && a.Status == "error" && a.ErrorType == "bad_data":
		return 0, errors.New("the server cannot read the query")
	case bad || res.StatusCode != http.StatusOK || a.Status != "success":
		return 0, fmt.Errorf("the answer, of status %d, is none of Prometheus", res.StatusCode)
	}
	return number(a.Data.Type, a.Data.Result)
}

// number returns the number of a result.
func number(kind string, result json.RawMessage) (float64, error) {
	var value []any // the time, and the number as a text
	switch kind {
	case "scalar":
		if json.Unmarshal(result, &value) != nil {
			return 0, errors.New("the result cannot be read")
		}
	case "vector":
		var all []struct {
			Value []any `json:"value"`
		}
		if json.Unmarshal(result, &all) != nil {
			return 0, errors.New("the result cannot be read")
		}
		switch len(all) {
		case 0:
			return 0, errors.New("the result is empty")
		case 1:
			value = all[0].Value
		default:
			return 0, fmt.Errorf("the result has %d series: aggregate them, such as by max()", len(all))
		}
	default:
		return 0, errors.New("the result is neither a number nor an instant vector")
	}
	text := ""
	if len(value) == 2 {
		text, _ = value[1].(string)
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return 0, errors.New("the result cannot be read")
	case math.IsNaN(v):
		return 0, errors.New("the result is NaN")
	case v < 0 || math.IsInf(v, 0):
		return 0, errors.New("the result is not a number from 0 on")
	}
	return v, nil
}
