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

// newReader reads the format number at the beginning of a message.
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

// end returns an error if the message was invalid or was not read completely.
func (d *reader) end() error {
	if !d.Done() {
		return errDamaged()
	}
	return nil
}
