package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// naive sends all records at once, and a second later again what was rejected, until nothing is. It
// returns how many were sent each time.
func naive(
	ctx context.Context, client *http.Client, url string, records []record, second time.Duration,
) ([]int, error) {
	var passes []int
	for len(records) > 0 {
		passes = append(passes, len(records))
		refused, err := sendAll(ctx, client, url, records)
		if err != nil {
			return passes, err
		}
		again := make(map[string]bool, len(refused))
		for _, id := range refused {
			again[id] = true
		}
		var left []record
		for _, r := range records {
			if again[r.ID] {
				left = append(left, r)
			}
		}
		if records = left; len(left) == 0 {
			break
		}
		select {
		case <-time.After(second):
		case <-ctx.Done():
			return passes, ctx.Err()
		}
	}
	return passes, nil
}

// sendAll sends records in one request, and returns the ids of the rejected ones.
func sendAll(
	ctx context.Context, client *http.Client, url string, records []record,
) (refused []string, err error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for _, r := range records {
		r.Price = price(r)
		if err := lines.Encode(r); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, &body)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusCreated:
		return nil, nil
	case http.StatusTooManyRequests:
		return refused, json.NewDecoder(answer.Body).Decode(&refused)
	}
	return nil, fmt.Errorf("the database answered %s", answer.Status)
}

// price is the value that enriching a record adds.
func price(r record) float64 { return 0.5 * float64(r.Count) }
