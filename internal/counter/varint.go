package counter

import (
	"fmt"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/slot"
)

func flag(yes bool, bit uint64) uint64 {
	if yes {
		return bit
	}
	return 0
}

func errDamaged() error { return fmt.Errorf("%w: damaged", slot.ErrMessage) }

// A reader reads the parts of messages.
type reader struct{ codec.Reader }

// newReader reads the number that every message begins with.
func newReader(b []byte) (reader, error) {
	d := reader{codec.NewReader(b)}
	v := d.Uint()
	if d.Bad() {
		return d, errDamaged()
	}
	if v != wireFormat {
		return d, fmt.Errorf("%w: format %d, this program reads %d: "+
			"upgrade the older program first", slot.ErrMessage, v, wireFormat)
	}
	return d, nil
}

// end says what is wrong with the message, if anything is: the whole of it must have
// been read.
func (d *reader) end() error {
	if !d.Done() {
		return errDamaged()
	}
	return nil
}
