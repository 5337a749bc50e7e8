package wire

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// WritePlainPage writes a page of one sentence for a state, by default the number of people ahead. The page
// loads itself again after a time if that may help.
func WritePlainPage(w io.Writer, state string, position, ahead int64, again time.Duration, may bool) error {
	refresh, says := "", fmt.Sprintf("You are in line. People ahead of you: %d.", ahead)
	switch {
	case state == "denied":
		again, says = 0, Denied
	case !may:
		again, says = 0, "No one can enter at the moment."
	case position == 0:
		says = Why(state, "You are in line.")
	}
	if again > 0 {
		refresh = fmt.Sprintf("<meta http-equiv=refresh content=%d>", int(again/time.Second)+1)
	}
	_, err := io.WriteString(w, "<!doctype html><html lang=en><meta charset=utf-8>"+refresh+
		"<title>"+says+"</title><p>"+says+"</p></html>")
	return err
}

// ServedDocument returns the JSON that is the same for all waiting visitors: every lower ticket than
// served was called.
func ServedDocument(served uint64, waiting int64, state, message string, perMinute float64) []byte {
	b := strconv.AppendUint([]byte(`{"served":`), served, 10)
	b = AppendJSONInt(b, "waiting", waiting)
	b = AppendJSONString(b, "state", state)
	b = AppendJSONString(b, "message", message)
	b = strconv.AppendFloat(append(b, `,"rate_per_minute":`...), perMinute, 'f', 1, 64)
	return append(b, `,"refresh_seconds":5}`+"\n"...)
}

// Partition completes a cookie. SameSite=None requires Secure and makes it Partitioned; without
// Secure, and by default, it is Lax.
func Partition(c *http.Cookie) *http.Cookie {
	c.Partitioned = c.SameSite == http.SameSiteNoneMode && c.Secure
	if c.SameSite != http.SameSiteStrictMode && !c.Partitioned {
		c.SameSite = http.SameSiteLaxMode
	}
	return c
}
