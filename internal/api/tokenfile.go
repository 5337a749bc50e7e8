package api

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
)

// CreateToken adds a token to a data folder and returns its text, which is not stored. It creates
// the folder if it does not exist. A running headgate accepts the token at once.
func CreateToken(dir string, t Token) (secret string, made Token, err error) {
	secret, t.Hash, t.ID = newToken()
	t.CreatedAt = time.Now().UTC().Truncate(time.Second)
	err = editTokens(dir, func(list []Token) ([]Token, error) {
		if len(list) >= maxTokens {
			return nil, &hint.Error{
				Text: fmt.Sprintf("%s: already contains %d tokens", filepath.Join(dir, tokensFile), maxTokens),
				Do:   "revoke unused tokens: headgate token list, headgate token revoke ID"}
		}
		return append(list, t), nil
	})
	return secret, t, err
}

// ListTokens returns what is stored about the tokens in a data folder.
func ListTokens(dir string) ([]Token, error) {
	path := filepath.Join(dir, tokensFile)
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return nil, nil
	}
	return readTokens(path)
}

// RevokeToken removes a token from a data folder. ok is false when there is no such token.
func RevokeToken(dir, id string) (gone Token, ok bool, err error) {
	if list, err := ListTokens(dir); err != nil || len(list) == 0 {
		return gone, false, err // without creating an empty file
	}
	err = editTokens(dir, func(list []Token) ([]Token, error) {
		at := slices.IndexFunc(list, func(t Token) bool { return t.ID == id })
		if at < 0 {
			return list, nil
		}
		gone, ok = list[at], true
		return slices.Delete(list, at, at+1), nil
	})
	return gone, ok, err
}

// editTokens changes the list under a lock on its file, and replaces the file
// as a whole: a crash leaves the old list or the new one.
func editTokens(dir string, edit func([]Token) ([]Token, error)) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return hint.File(err, dir+": cannot be made", "set --data DIR to the data folder of headgate")
	}
	path := filepath.Join(dir, tokensFile)
	lock, err := lockTokens(path)
	if err != nil {
		return hint.File(err, path+": cannot be opened",
			"run this command as the user that runs headgate and owns the data folder")
	}
	defer lock.Close() // also unlocks
	list, err := readTokens(path)
	if err != nil {
		return err
	}
	if list, err = edit(list); err != nil {
		return err
	}
	if err := replaceTokens(dir, list); err != nil {
		return hint.File(err, path+": cannot be written",
			"check that the disk has free space and that the folder belongs to the user that runs headgate")
	}
	return nil
}

// lockTokens opens and locks the file that exists once the lock is held: another writer may have
// replaced the file while this one waited.
func lockTokens(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := platform.Lock(f); err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		there, err2 := os.Stat(path)
		if err == nil && err2 == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// replaceTokens replaces the file of tokens in one step: a reader sees the old list or the new one,
// also after a power failure.
func replaceTokens(dir string, list []Token) error {
	b, err := json.MarshalIndent(map[string]any{"tokens": list}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, tokensFile+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := sameOwner(dir, f); err != nil {
		return err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, tokensFile)); err != nil {
		return err
	}
	return platform.SyncDir(dir)
}

// sameOwner gives a file that root creates to the owner of the folder. Otherwise headgate could not
// read it and would know no token at all.
func sameOwner(dir string, f *os.File) error {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	if uid, gid, ok := platform.Owner(info); ok && uid != 0 {
		return f.Chown(uid, gid)
	}
	return nil
}
