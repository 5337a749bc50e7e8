// Package completion makes the jobs that tell the owner of a queue how its jobs have ended.
//
// A completion is a job of another queue: that queue delivers it, tries it again, signs it and keeps it
// when it is dead. The body has the form of the webhooks of rooms (docs/webhooks.md).
//
// # Concurrency
//
// The functions are pure.
//
// # Limits of the package
//
// It does not decide when a job has ended, or which queue gets its completion: package queue calls OnEnd,
// and the process puts the jobs.
package completion

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/headgate/headgate/queue"
)

// Version is the version of the body. It changes when a field is removed or changes its meaning, but not when
// one is added.
const Version = 1

type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Version   int       `json:"version"`
	Data      data      `json:"data"`
}

type data struct {
	Queue    string `json:"queue"`
	ID       string `json:"id"`
	Key      string `json:"key,omitempty"`
	OrderKey string `json:"order_key,omitempty"`
	Tenant   string `json:"tenant,omitempty"`
	State    string `json:"state"`
	Attempts int    `json:"attempts"`
	Status   int    `json:"status,omitempty"`
	Why      string `json:"why,omitempty"`
}

// Jobs returns the completions of jobs that have ended, in the same order. Completions of jobs with an order
// key have the same one, and the same tenant: they are delivered in order, too.
func Jobs(ended []queue.Ended) []queue.Job {
	jobs := make([]queue.Job, len(ended))
	for i := range ended {
		e := &ended[i]
		body, err := json.Marshal(message{Type: "job_" + e.State, Timestamp: e.At, Version: Version,
			Data: data{Queue: e.Queue, ID: e.ID, Key: e.Key, OrderKey: e.OrderKey, Tenant: e.Tenant,
				State: e.State, Attempts: e.Attempts, Status: e.Status, Why: e.Reason}})
		if err != nil { // text and numbers always have a JSON form
			panic(err)
		}
		jobs[i] = queue.Job{Key: Key(e), OrderKey: e.OrderKey, Tenant: e.Tenant, Body: body,
			Headers: map[string]string{"Content-Type": "application/json"}}
	}
	return jobs
}

// Key returns the idempotency key of a completion. It is the same when the completion is put again, and
// another one when a job that was redriven ends again.
func Key(e *queue.Ended) string {
	return e.Queue + "/" + e.ID + "/" + strconv.FormatInt(e.At.UnixMilli(), 10)
}
