package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestScopes(t *testing.T) {
	tests := []struct {
		scopes, scope, room string
		may                 bool
	}{
		{"read", "read", "", true},
		{"read", "read", "shop", true},
		{"read", "write", "shop", false},
		{"write", "write", "", true},
		{"write", "read", "", true},
		{"write", "write", "shop", true},
		{"read:shop", "read", "shop", true},
		{"read:shop", "read", "tea", false},
		{"read:shop", "read", "", false},
		{"write:shop", "read", "shop", true},
		{"write:shop", "write", "shop", true},
		{"write:shop", "write", "", false},
		{"write:shop", "write", "shop2", false},
		{"read,write:shop", "write", "tea", false},
		{"read,write:shop", "read", "tea", true},
	}
	for _, tt := range tests {
		scopes, err := ParseScopes(tt.scopes)
		if err != nil {
			t.Fatal(err)
		}
		k := Token{Scopes: scopes}
		if got := k.Allows(tt.scope, tt.room); got != tt.may {
			t.Errorf("%s may %s %q: got %v", tt.scopes, tt.scope, tt.room, got)
		}
	}
	for _, bad := range []string{"", "all", "READ", "read:", "write:a b", "read,", "read;write", ":shop",
		"write:" + strings.Repeat("x", 65)} {
		if got, err := ParseScopes(bad); err == nil {
			t.Errorf("%q: got %v", bad, got)
		}
	}
	none := Token{Scopes: []string{"", "writes", ":shop"}}
	if none.Allows("read", "shop") || none.mayAny("read") || (&Token{}).Allows("", "") {
		t.Error("a scope that is none lets in")
	}
}

func TestCreateListRevoke(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	if list, err := ListTokens(dir); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	if _, ok, err := RevokeToken(dir, "x"); ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("looking made a folder")
	}
	secret, made, err := CreateToken(dir, Token{Name: "n", Scopes: []string{"read"}})
	if err != nil || !wellFormed(secret) || made.ID == "" {
		t.Fatal(secret, made, err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, tokensFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
	tokens := NewTokens(dir, slog.New(slog.DiscardHandler))
	if got, ok := tokens.find(secret); !ok || got.ID != made.ID || got.Name != "n" {
		t.Errorf("%+v %v", got, ok)
	}
	if _, ok := tokens.find(secret[:len(secret)-1] + "A"); ok && !strings.HasSuffix(secret, "A") {
		t.Error("another token was found")
	}
	if _, ok, err := RevokeToken(dir, made.ID); !ok || err != nil {
		t.Error(ok, err)
	}
	if _, ok := tokens.find(secret); ok {
		t.Error("a revoked token was found")
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// Two commands run at the same time: no token may be lost.
func TestTokensAreCreatedAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	secrets := make([]string, 30)
	for i := range secrets {
		wg.Go(func() {
			var err error
			if secrets[i], _, err = CreateToken(dir, Token{Scopes: []string{"read"}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	tokens := NewTokens(dir, slog.New(slog.DiscardHandler))
	for _, s := range secrets {
		if _, ok := tokens.find(s); !ok {
			t.Error("a token is lost")
		}
	}
}

func TestTheTokenFileIsWatchedClosely(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, tokensFile)
	var log bytes.Buffer
	tokens := NewTokens(dir, slog.New(slog.NewTextHandler(&log, nil)))
	secret, _, err := CreateToken(dir, Token{Scopes: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tokens.find(secret); !ok || log.Len() > 0 {
		t.Fatalf("%v %s", ok, log.String())
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Second)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if _, ok := tokens.find(secret); !ok || !strings.Contains(log.String(), "chmod 600") {
		t.Errorf("others may read the file: %v, log %q", ok, log.String())
	}
	// Same size, another token: the content must be read again.
	other, hash, _ := newToken()
	var kept struct{ Tokens []Token }
	if err := json.Unmarshal(b, &kept); err != nil {
		t.Fatal(err)
	}
	b = bytes.ReplaceAll(b, []byte(kept.Tokens[0].Hash), []byte(hash))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	later = later.Add(time.Millisecond)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if _, ok := tokens.find(other); !ok {
		t.Error("a change of the same size was not seen")
	}
	log.Reset()
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, ok := tokens.find(other); ok {
			t.Error("a damaged file lets in")
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("told %d times: %s", n, log.String())
	}
	_, _, err = CreateToken(dir, Token{Scopes: []string{"read"}})
	h, ok := err.(interface{ Hint() string })
	if !ok || !strings.Contains(err.Error(), "is damaged") || !strings.Contains(h.Hint(), "backup") {
		t.Errorf("creating beside a damaged file: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "{" {
		t.Errorf("the damaged file was overwritten: %s %v", b, err)
	}
}

func TestThereIsAnEndToTokens(t *testing.T) {
	dir := t.TempDir()
	list := make([]Token, maxTokens)
	for i := range list {
		_, list[i].Hash, list[i].ID = newToken()
	}
	if err := replaceTokens(dir, list); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, tokensFile)); err != nil || info.Size() > maxTokenFile {
		t.Errorf("%d tokens take %d bytes", maxTokens, info.Size())
	}
	if _, _, err := CreateToken(dir, Token{Scopes: []string{"read"}}); err == nil {
		t.Error("one more was taken")
	}
}
