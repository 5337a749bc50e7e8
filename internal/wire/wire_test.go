package wire

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestWhatIsAGRPCCall(t *testing.T) {
	for kind, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc; charset=x": true,
		"application/grpc-web": false, "application/grpcx": false, "application/json": false, "": false,
	} {
		if got := IsGRPC(&http.Request{Header: http.Header{"Content-Type": {kind}}}); got != want {
			t.Errorf("%q: %v", kind, got)
		}
	}
}

func TestMessagesInPercent(t *testing.T) {
	w := httptest.NewRecorder()
	WriteGRPC(w, "100 %\né~", nil)
	if got := w.Header().Get("Grpc-Message"); got != "100 %25%0A%C3%A9~" {
		t.Error(got)
	}
}
