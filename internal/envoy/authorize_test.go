package envoy

import (
	"io"
	"net/http"
	"slices"
	"testing"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/forwardauth"
)

// TestAuthorize: Envoy removes each spelling of a header that names another request, and gets an
// answer also where a page is no text.
func TestAuthorize(t *testing.T) {
	s := New(Config{Decide: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/in" {
			w.Header().Set(forwardauth.AdmittedHeader, forwardauth.AdmittedSession)
			w.WriteHeader(http.StatusNoContent)
		}
		io.WriteString(w, "GIF89a\x80")
	})})
	ask := func(path string) *auth.CheckResponse {
		t.Helper()
		a, err := check(t, s, &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
				Method: "GET", Path: path, Host: "shop.example", Headers: map[string]string{"": "", ":path": path,
					"x_original_url": "/", "headgate.pass": "a", "script_name": "/", "x-http-method": "POST", "accept": "*/*"}}},
		}})
		if err == nil {
			_, err = proto.Marshal(a)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ok := ask("/in").GetOkResponse()
	for _, name := range []string{"x_original_url", "headgate.pass", "script_name", "x-http-method", "headgate-pass"} {
		if !slices.Contains(ok.GetHeadersToRemove(), name) {
			t.Errorf("%s is not removed: %v", name, ok.GetHeadersToRemove())
		}
	}
	if slices.Contains(ok.GetHeadersToRemove(), "accept") {
		t.Error("accept is removed")
	}
	if no := ask("/out").GetDeniedResponse(); no.GetStatus().GetCode() != 200 {
		t.Errorf("denied: %v", no)
	}
}

// A request at which a room panics is denied, and ends no process. By an error, an Envoy that fails open
// would let it in.
func TestAuthorizeSurvivesAPanic(t *testing.T) {
	s := New(Config{Decide: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no room") })})
	a, err := check(t, s, &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
			Method: "GET", Path: "/", Host: "shop.example"}}}})
	if err != nil || a.GetDeniedResponse().GetStatus().GetCode() != http.StatusInternalServerError {
		t.Errorf("%v, %v", a, err)
	}
}

// What cannot be read is denied, for the same reason.
func TestAuthorizeDeniesWhatItCannotRead(t *testing.T) {
	s := New(Config{Decide: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()[forwardauth.AdmittedHeader] = []string{"session"}
	})})
	for _, path := range []string{"/%zz", "/%", "", "shop", "/\x00"} {
		a, err := check(t, s, &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
				Method: "GET", Path: path, Host: "shop.example"}}}})
		if err != nil || a.GetDeniedResponse().GetStatus().GetCode() != http.StatusBadRequest {
			t.Errorf("%q: %v, %v", path, a, err)
		}
	}
	var a auth.CheckResponse
	if b, err := s.check(t.Context(), []byte{0xff}, nil); err != nil || proto.Unmarshal(b, &a) != nil ||
		a.GetDeniedResponse().GetStatus().GetCode() != http.StatusBadRequest {
		t.Errorf("a damaged message: %v, %v", &a, err)
	}
}

// check asks a service.
func check(t *testing.T, s *Service, q *auth.CheckRequest) (*auth.CheckResponse, error) {
	t.Helper()
	req, err := proto.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.check(t.Context(), req, nil)
	if err != nil {
		return nil, err
	}
	a := &auth.CheckResponse{}
	return a, proto.Unmarshal(b, a)
}
