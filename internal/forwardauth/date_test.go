package forwardauth

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// TestDateOfPasses: a connector measures by the date of the answer how long it may let a session in.
func TestDateOfPasses(t *testing.T) {
	for local, want := range map[string]bool{"/": true, "": false} {
		var out bytes.Buffer
		a := &answer{header: http.Header{LocalHeader: {local}}, code: http.StatusNoContent}
		if err := a.send(bufio.NewWriter(&out), false, false); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "\r\nDate: "); got != want {
			t.Errorf("%s %q: date %v, want %v", LocalHeader, local, got, want)
		}
	}
}
