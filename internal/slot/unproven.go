package slot

// unprovenPart: unproven requests may use one part in unprovenPart of a limit per window, just as
// the built-in lane of a network above its join limit has a tenth of the calls. Chosen.
const unprovenPart = 10

// Unproven bounds the uses of a limit per window by requests that probably no person sent. In every
// window they get at most a tenth of the limit, rounded up. As with the limit itself, a use comes
// back up to a bucket (1/400 of the window) late. The zero value has no uses. It holds at most one
// bucket for each 1/400 of the window, however many uses there are.
type Unproven struct{ ends Ends }

// Take uses one if one is left, and returns the end of the use for Return.
func (u *Unproven) Take(l Limit, now Time) (end Time, ok bool) {
	par := Params{}.WithDefaults()
	u.ends.Free(now, func(EndCount) {})
	if u.ends.Len() >= ceilDiv(l.N, unprovenPart) {
		return 0, false
	}
	end = par.CeilEnd(l, now.Add(l.Per))
	u.ends.Add(end, 1)
	return end, true
}

// Return takes back a use that did not happen.
func (u *Unproven) Return(end Time) { u.ends.Remove(end) }
