package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/platform"
)

// Parameters of diskRoom. Chosen: docs/operations.md calls 100 MB of free space plenty for all
// but jobs, a small disk has less; and what is put within lookAgain is counted.
const (
	keptFree     = 100 << 20
	keptFreePart = 20 // of the disk, if that is less
	lookAgain    = 100 * time.Millisecond
)

// A diskRoom keeps jobs from filling the disk of the data folder: on a full one no room lets
// anybody in, and no job can be noted as done or be removed, so that it would stay full.
// It may be used by many goroutines at once.
type diskRoom struct {
	dir  string
	look func(dir string) (free, size uint64, err error)

	mu   sync.Mutex
	at   time.Time // of the look
	left int64     // above what is kept free
	kept int64
}

func newDiskRoom(dir string) *diskRoom { return &diskRoom{dir: dir, look: platform.Space} }

// take says whether so many bytes of jobs may be written, and why not.
func (d *diskRoom) take(bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.at) >= lookAgain {
		free, size, err := d.look(d.dir)
		if err != nil { // it cannot be told: the engine refuses what does not fit
			return nil
		}
		d.kept = int64(min(keptFree, size/keptFreePart))
		d.at, d.left = now, int64(free)-d.kept
	}
	if bytes > d.left {
		return fmt.Errorf("the disk of the data folder has too little room: %d MB are kept free for all else",
			max(1, d.kept>>20))
	}
	d.left -= bytes
	return nil
}
