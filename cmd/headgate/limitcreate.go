package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// createLimit creates a limit, or replaces one created before.
func (o *operator) createLimit(ctx context.Context, w io.Writer, name string, words []string) error {
	rule, err := limitRule(words)
	if err != nil {
		return err
	}
	var got shownLimit
	if err := o.do(ctx, http.MethodPut, "/v1/limits/"+url.PathEscape(name), rule, &got); err != nil {
		return err
	}
	fmt.Fprintf(w, "made: %s: %v\n", got.Name, &got)
	return nil
}

// limitRule returns the settings of a limit as JSON. It does not check the values; the API does.
func limitRule(words []string) (map[string]any, error) {
	pairs, err := limitPairs(words)
	if err != nil {
		return nil, err
	}
	rule, overrides := map[string]any{}, map[string]any{}
	for key, value := range pairs {
		var v any = value
		switch {
		case isNumber(value):
			v = json.Number(value)
		case value == "true", value == "false":
			v = value == "true"
		}
		whose, of := strings.CutPrefix(key, "overrides.")
		switch {
		case of:
			overrides[whose] = v
		case key == "key":
			rule[key] = strings.Split(value, ",") // no part of a key contains one
		default:
			rule[key] = v
		}
	}
	if len(overrides) > 0 {
		rule["overrides"] = overrides
	}
	return rule, nil
}

// isNumber reports whether a word is a JSON number.
func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && json.Valid([]byte(s))
}

// removeLimit removes a limit that was created by the API.
func (o *operator) removeLimit(ctx context.Context, w io.Writer, name string) error {
	var got struct {
		Stays bool `json:"in_file"`
	}
	if err := o.do(ctx, http.MethodDelete, "/v1/limits/"+url.PathEscape(name), nil, &got); err != nil {
		return err
	}
	fmt.Fprintf(w, "removed: %s\n", name)
	if got.Stays {
		fmt.Fprintln(w, "the configuration has one of that name, which stays")
	}
	return nil
}
