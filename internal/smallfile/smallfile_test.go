package smallfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/hint"
)

func TestReadTakesSmallPlainFilesOnly(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, size int, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Repeat("x", size)), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		file         string
		public, want string // the problem; "" is none
	}{
		{file("own", 1, 0o600), "", ""},
		{file("largest", MaxSize, 0o600), "", ""},
		{file("larger", MaxSize+1, 0o600), "is larger than 1 MB", "is larger than 1 MB"},
		{file("open", 1, 0o644), "", "may be read by others (mode 644)"},
		{dir, "is not a plain file", "is not a plain file"},
		{filepath.Join(dir, "none"), "there is no such file", "there is no such file"},
	} {
		check := func(err error, want string) {
			t.Helper()
			e, ok := errors.AsType[*hint.Error](err)
			if ok != (want != "") || ok && (e.Error() != tt.file+": "+want || e.Hint() == "") {
				t.Errorf("%s: %v, want %q and a hint", tt.file, err, want)
			}
		}
		_, err := ReadPublic(tt.file)
		check(err, tt.public)
		_, err = ReadSecret(tt.file)
		check(err, tt.want)
	}
	if _, err := ReadPublic(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v hides its cause", err)
	}
}
