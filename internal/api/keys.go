package api

import (
	"errors"
	"strconv"
	"time"
)

// Keys manages the sealing keys of a process, or of its cluster.
type Keys struct {
	List   func() ([]Key, error)
	Rotate func() (RotateResult, error)
	Forget func(id int) error // returns ErrNoKey, ErrKeySeals
}

// A Key is a sealing key without its secret.
type Key struct {
	Key        int       `json:"key"`                  // its number in its data center
	Datacenter string    `json:"datacenter,omitempty"` // "" with only one data center
	MadeAt     time.Time `json:"made_at"`
	Seals      bool      `json:"seals"`
}

// RotateResult is the result of a rotation of the sealing key.
type RotateResult struct {
	Key     int     `json:"key"`              // number of the new key
	SealsIn float64 `json:"seals_in_seconds"` // until it seals: all nodes must know it first
}

// Reasons why a key cannot be removed.
var (
	ErrNoKey    = errors.New("there is no such sealing key")
	ErrKeySeals = errors.New("this key seals cookies now, or will do so soon")
)

// keys handles GET /v1/keys.
func (a *API) keys(*call) (any, error) { return a.cfg.Keys.List() }

// rotate handles POST /v1/keys/rotate.
func (a *API) rotate(c *call) (any, error) {
	got, err := a.cfg.Keys.Rotate()
	if err != nil {
		return nil, err
	}
	c.done.After = map[string]string{"key": strconv.Itoa(got.Key)}
	return got, nil
}

// forget handles DELETE /v1/keys/{id}. It answers with the remaining keys.
func (a *API) forget(c *call) (any, error) {
	id, err := strconv.Atoi(c.r.PathValue("id"))
	if err != nil {
		return nil, ErrNoKey
	}
	if err := a.cfg.Keys.Forget(id); err != nil {
		return nil, err
	}
	c.done.Before = map[string]string{"key": strconv.Itoa(id)}
	return a.cfg.Keys.List()
}
