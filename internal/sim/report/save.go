package report

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/internal/hint"
)

// CanSave returns an error if Save could not write a file, as far as that can be known in advance:
// a run of minutes should not end with it.
func CanSave(file string) error {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return hint.File(errors.New("it is a folder"), "write "+file, "name a file in it, such as report.html")
	}
	folder := filepath.Dir(file)
	info, err := os.Stat(folder)
	if err == nil && !info.IsDir() {
		err = errors.New(folder + " is no folder")
	}
	if err != nil {
		return hint.File(err, "write "+file, "name a file in a folder that exists")
	}
	return nil
}

// Save writes the page to a file and replaces it atomically: there is never an incomplete file.
func (r *Report) Save(ctx context.Context, file string) error {
	f, err := beside(file)
	if err != nil {
		return hint.File(err, "write "+file, "name a file in a folder that you may write to")
	}
	w := bufio.NewWriter(f)
	err = errors.Join(r.HTML(w), w.Flush(), f.Close(), ctx.Err())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return hint.File(errors.Join(err, os.Remove(f.Name())), "write "+file, "see whether the disk is full")
	}
	return nil
}

// beside creates a new file in the same folder, with the user's usual permissions. os.CreateTemp
// would make it private, but a report is meant to be shared.
func beside(file string) (*os.File, error) {
	for {
		name := filepath.Join(filepath.Dir(file), fmt.Sprintf(".%s.%08x", filepath.Base(file), rand.Uint32()))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}
