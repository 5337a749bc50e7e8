package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// inMemory brings requests to a handler without a network.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}

// As in Azure's "Rate Limiting pattern": 10,000 records of 10 RU into 20,000 RU a second, by
// naive retry. In a bubble a pass takes no time, as in the example: on a busy machine it takes
// longer than a second, and the database takes more of it.
func TestNaiveRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase(20_000, 10, time.Second)
		client := &http.Client{Transport: inMemory{db}}
		passes, err := naive(t.Context(), client, "http://db", records("N", 10_000), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]int{10_000, 8_000, 6_000, 4_000, 2_000}, passes); d != "" {
			t.Error(d)
		}
		c := db.look()
		if c.Sends != 30_000 || c.Refused != 20_000 || c.Stored != 10_000 || c.Twice != 0 {
			t.Errorf("%+v", c)
		}
	})
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"soon"}, {"1ms"}, {"1h"}, {"1s", "2s"}} {
		if err := run(t.Context(), args, nil); err == nil || !strings.HasPrefix(err.Error(), "usage:") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
