package api

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
)

// The scopes of a token. Each may end in :NAME, and is then limited to the room and the queue of
// that name, or in :zone/NAME for the rooms of a zone. write includes all others.
const (
	scopeRead  = "read"
	scopeWrite = "write"
	scopePut   = "put"   // puts jobs into queues: not a change, so not in the audit log
	scopeClaim = "claim" // claims jobs, and says what became of them; like put
	scopePass  = "pass"  // what a site's own backend says; like put, not in the audit log
	scopeLoad  = "load"  // how an origin answers, as its own programs report it; like pass

	scopeRelease = "release" // releases tickets from the lane of unsolved challenges
	scopeHolders = "holders" // makes and changes holders of keys, and makes their keys
)

const (
	tokensFile   = "tokens.json"
	tokenPrefix  = "hg_" // lets secret scanners recognize leaked tokens
	tokenBytes   = 32
	maxTokens    = 1000    // chosen: each request is compared with all of them
	maxTokenFile = 1 << 20 // 1,000 tokens are a third of it
)

// A Token is what is stored about a token: its hash, not the token itself.
type Token struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Hash      string    `json:"sha256"` // of the whole token; 256 random bits need no salt
	Scopes    []string  `json:"scopes"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
}

// IsExpired reports whether the token has expired.
func (t *Token) IsExpired(now time.Time) bool {
	return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}

// Allows reports whether the token allows scope for a room; "" is all rooms.
func (t *Token) Allows(scope, room string) bool {
	return slices.ContainsFunc(t.Scopes, func(s string) bool {
		verb, only, narrow := strings.Cut(s, ":")
		return (verb == scope || verb == scopeWrite) &&
			(!narrow || room != "" && only == room)
	})
}

// zoned reports whether any scope is limited to a zone.
func (t *Token) zoned() bool {
	return slices.ContainsFunc(t.Scopes, func(s string) bool { return strings.Contains(s, ":"+zoneScope) })
}

// mayAny reports whether the token allows scope for any room at all.
func (t *Token) mayAny(scope string) bool {
	return slices.ContainsFunc(t.Scopes, func(s string) bool {
		_, room, _ := strings.Cut(s, ":")
		return t.Allows(scope, room)
	})
}

// ParseScopes parses read, write:shop, put:orders, claim:orders, pass:shop, load:shop, release:shop,
// or several of them separated by commas.
func ParseScopes(s string) ([]string, error) {
	var all []string
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		verb, room, narrow := strings.Cut(part, ":")
		known := slices.Contains([]string{scopeRead, scopeWrite, scopePut, scopeClaim, scopePass, scopeLoad,
			scopeRelease, scopeHolders}, verb)
		if !known || narrow && (verb == scopeHolders || !plainWord(room) && !plainZone(room)) {
			return nil, errors.New("the scopes are read, write, put, claim, pass, load, release and holders; " +
				"for one room or queue, read:NAME, write:NAME, put:NAME, claim:NAME, pass:NAME, load:NAME and " +
				"release:NAME; for one zone, read:zone/NAME and write:zone/NAME")
		}
		if !slices.Contains(all, part) {
			all = append(all, part)
		}
	}
	return all, nil
}

// plainZone reports whether a word names a zone: zone/example.com.
func plainZone(s string) bool {
	name, ok := strings.CutPrefix(s, zoneScope)
	return ok && len(name) <= 253 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" &&
		name != ""
}

// wellFormed reports whether a text has the form of a token, before it is hashed.
func wellFormed(s string) bool {
	raw, ok := strings.CutPrefix(s, tokenPrefix)
	if !ok || len(raw) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return false
	}
	_, err := base64.RawURLEncoding.DecodeString(raw)
	return err == nil
}

// newToken generates a random token. The text is not stored.
func newToken() (secret, hash, id string) {
	b := make([]byte, tokenBytes)
	rand.Read(b) // never fails
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
	return secret, hashOf(secret), strings.ToLower(rand.Text()[:8])
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Tokens holds the tokens of a data folder. It reads them again whenever their file changes, so
// that new and revoked tokens take effect at once.
type Tokens struct {
	dir string
	log *slog.Logger

	mu   sync.Mutex
	list []Token
	seen os.FileInfo // the file that list was read from; nil if it could not be read
	told string      // the last logged error
}

// NewTokens returns the tokens of a data folder. It reads nothing yet.
func NewTokens(dir string, log *slog.Logger) *Tokens { return &Tokens{dir: dir, log: log} }

// find returns the token of a secret. It compares with all of them, each in constant time.
func (t *Tokens) find(secret string) (found Token, ok bool) {
	hash := []byte(hashOf(secret))
	for _, k := range t.current() {
		if subtle.ConstantTimeCompare(hash, []byte(k.Hash)) == 1 {
			found, ok = k, true
		}
	}
	return found, ok
}

// current returns the list in the file. A file that cannot be read counts as empty: it is safer to
// reject all tokens than to accept revoked ones.
func (t *Tokens) current() []Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	path := filepath.Join(t.dir, tokensFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.list, t.seen, t.told = nil, nil, ""
		return nil
	}
	if err == nil && t.seen != nil && os.SameFile(info, t.seen) && info.Size() == t.seen.Size() &&
		info.ModTime().Equal(t.seen.ModTime()) {
		return t.list
	}
	// Stat before read: a change in between is then found the next time. A failed read is also
	// repeated: a process may be out of file descriptors for a moment.
	t.list, t.seen = nil, nil
	if err == nil {
		t.list, err = readTokens(path)
	}
	if err != nil {
		if t.told != err.Error() { // log once, not for each request
			t.told = err.Error()
			t.log.Error("cannot read the tokens, so no token is valid", "error", err)
		}
		return nil
	}
	t.seen, t.told = info, ""
	if !platform.IsPrivate(info.Mode()) {
		t.log.Warn("other users can read the hashes of the tokens", "hint", "chmod 600 "+path)
	}
	return t.list
}

// readTokens reads the file of tokens. A damaged file is an error and not an empty list: every
// token would seem to be revoked.
func readTokens(path string) ([]Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, tokenError(path, "cannot be read", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err != nil {
		return nil, tokenError(path, "cannot be read", err)
	}
	if len(bytes.TrimSpace(b)) == 0 { // created empty by the first writer that locked it
		return nil, nil
	}
	var kept struct {
		Tokens []Token `json:"tokens"`
	}
	if len(b) > maxTokenFile {
		return nil, tokenError(path, "is larger than 1 MB", nil)
	}
	if err := json.Unmarshal(b, &kept); err != nil {
		return nil, tokenError(path, "is damaged", err)
	}
	for _, t := range kept.Tokens {
		if len(t.Hash) != hex.EncodedLen(sha256.Size) || t.ID == "" {
			return nil, tokenError(path, "is damaged: a token has no hash or no id", nil)
		}
	}
	return kept.Tokens, nil
}

func tokenError(path, text string, err error) error {
	do := "run this command as the user that runs headgate and owns the file"
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		do = "restore it from a backup, or move it away and create new tokens"
	}
	return hint.File(err, path+": "+text, do)
}

// zoneScope is the prefix in the scope of a token for one zone.
const zoneScope = "zone/"

// plainWord reports whether a word from a client can be shown unchanged.
func plainWord(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			r == '_' || r == '-')
	})
}
