package crowd

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// These are the notices of a visitor that joins the line again because its challenge was not solved
// in time.
const (
	noticeNewChallenge = "new_challenge"
	noticeUnsolved     = "unsolved"
)

// The most that a challenge of a server may ask for. Chosen: sixteen times headgate's greatest cost,
// and a number of tries that a prefix of two digits practically never takes.
const (
	mostIterations = 64_000
	mostTries      = 10_000
)

// A challenge is a proof of work in the format of ALTCHA 2. Of challenges of third parties only the
// kind is read: a crowd cannot solve them.
type challenge struct {
	Parameters struct {
		Algorithm string `json:"algorithm"`
		Cost      int    `json:"cost"`
		KeyLength int    `json:"keyLength"`
		KeyPrefix string `json:"keyPrefix"`
		Nonce     string `json:"nonce"`
		Salt      string `json:"salt"`
	} `json:"parameters"`
	ID string `json:"signature"` // differs for each challenge
}

// A worker solves the challenge of one visitor, as the worker of the waiting page does.
type worker struct {
	id       string
	stop     context.CancelFunc
	running  sync.WaitGroup
	solution chan string // has room for the only one
	solved   string      // what was received
}

// work starts to solve a new challenge, and stops when there is none any more.
func (v *visitor) work(ctx context.Context, raw json.RawMessage) {
	var c challenge
	if len(raw) > 0 && json.Unmarshal(raw, &c) != nil {
		c = challenge{} // a later version of the format
	}
	if v.worker != nil && v.worker.id == c.ID {
		return
	}
	v.idle()
	if c.ID == "" {
		return
	}
	v.log.Challenges++
	ctx, stop := context.WithCancel(ctx)
	w := &worker{id: c.ID, stop: stop, solution: make(chan string, 1)}
	v.worker = w
	w.running.Go(func() {
		select {
		case v.crowd.solvers <- struct{}{}:
			defer func() { <-v.crowd.solvers }()
		case <-ctx.Done():
			return
		}
		if s, err := c.solve(ctx, raw); err == nil {
			w.solution <- s
		}
	})
}

// idle ends the work of the visitor.
func (v *visitor) idle() {
	if v.worker != nil {
		v.worker.stop()
		v.worker.running.Wait()
		v.worker = nil
	}
}

// solution returns what the next poll sends: the solution of the challenge that the last answer had, or
// "" while it is not known.
func (v *visitor) solution() string {
	w := v.worker
	if w == nil {
		return ""
	}
	if w.solved == "" {
		select {
		case w.solved = <-w.solution:
		default:
		}
		if w.solved != "" {
			v.log.Solutions++
		}
	}
	return w.solved
}

// solve looks for the counter whose key begins with the prefix. raw is the challenge as it came.
func (c *challenge) solve(ctx context.Context, raw json.RawMessage) (string, error) {
	p := &c.Parameters
	nonce, err1 := hex.DecodeString(p.Nonce)
	salt, err2 := hex.DecodeString(p.Salt)
	if err1 != nil || err2 != nil || p.Algorithm != "PBKDF2/SHA-256" ||
		p.Cost < 1 || p.Cost > mostIterations || p.KeyLength < 1 || p.KeyLength > sha256.Size {
		return "", fmt.Errorf("%s with cost %d is not known", p.Algorithm, p.Cost)
	}
	nonce = nonce[:len(nonce):len(nonce)]
	for n := range uint32(mostTries) {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		password := string(binary.BigEndian.AppendUint32(nonce, n))
		key, err := pbkdf2.Key(sha256.New, password, salt, p.Cost, p.KeyLength)
		if err != nil {
			return "", err
		}
		if text := hex.EncodeToString(key); strings.HasPrefix(text, p.KeyPrefix) {
			return payload(raw, n, text)
		}
	}
	return "", fmt.Errorf("no key of %d begins with %q", mostTries, p.KeyPrefix)
}

// payload is what the client sends, in Base64.
func payload(raw json.RawMessage, counter uint32, key string) (string, error) {
	var p struct {
		Challenge json.RawMessage `json:"challenge"`
		Solution  struct {
			Counter    uint32 `json:"counter"`
			DerivedKey string `json:"derivedKey"`
		} `json:"solution"`
	}
	p.Challenge, p.Solution.Counter, p.Solution.DerivedKey = raw, counter, key
	b, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b), nil
}
