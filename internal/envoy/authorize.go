package envoy

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/forwardauth"
)

// check answers Envoy's external authorization (envoy.service.auth.v3): may a request pass? The
// rooms decide. Envoy relays any answer to the visitor, also polls of the waiting page. What cannot be
// answered is denied: by an error of gRPC, an Envoy that fails open would let the request in.
func (s *Service) check(ctx context.Context, req, to []byte) (answer []byte, err error) {
	refuse := func(code int) ([]byte, error) {
		return proto.MarshalOptions{}.MarshalAppend(to, denied(&recorded{header: http.Header{}, code: code}))
	}
	defer func() { // as net/http does: a request must not end the process
		if p := recover(); p != nil {
			answer, err = refuse(http.StatusInternalServerError)
		}
	}()
	var q question
	if q.read(req) != nil {
		return refuse(http.StatusBadRequest)
	}
	r, err := q.visitorRequest(ctx)
	if err != nil {
		return refuse(http.StatusBadRequest)
	}
	return proto.MarshalOptions{}.MarshalAppend(to, s.authorize(&q, r))
}

func (s *Service) authorize(q *question, r *http.Request) *auth.CheckResponse {
	if s.unvouched != nil {
		q.removed = append(q.removed, s.unvouched(r)...)
	}
	a := &recorded{header: http.Header{}}
	s.decide.ServeHTTP(a, r)
	if a.code == 0 {
		a.code = http.StatusOK
	}
	if forwardauth.Lets(a.header, r) {
		return admitted(a.header, q)
	}
	if a.code < 300 && a.header[forwardauth.AdmittedHeader] != nil {
		a = &recorded{header: http.Header{}, code: http.StatusForbidden}
	}
	return denied(a)
}

// visitorRequest makes the visitor's request from what Envoy says of it. The visitor's address is
// that of the connection to Envoy, unless that is a trusted proxy itself.
func (q *question) visitorRequest(ctx context.Context) (*http.Request, error) {
	u, err := forwardauth.Target(q.path)
	if err != nil {
		return nil, err
	}
	r := &http.Request{
		Method: q.method, Host: q.host, URL: u, RequestURI: q.path,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: q.header, Body: http.NoBody,
	}
	if q.scheme == "https" {
		r.TLS = &tls.ConnectionState{}
	}
	from := q.source.GetAddress().GetSocketAddress()
	r.RemoteAddr = net.JoinHostPort(from.GetAddress(), strconv.Itoa(int(from.GetPortValue())))
	return r.WithContext(ctx), nil
}

// admitted returns the answer to a request that may pass. h is the header of the room's answer.
func admitted(h http.Header, q *question) *auth.CheckResponse {
	ok := &auth.OkHttpResponse{HeadersToRemove: slices.Concat(forwardauth.Claims, q.removed),
		Headers: []*core.HeaderValueOption{set("X-Forwarded-Host", q.host, false)}}
	if pass := h.Get(forwardauth.PassHeader); pass != "" {
		ok.Headers = append(ok.Headers, set(forwardauth.PassHeader, pass, false))
	} else {
		ok.HeadersToRemove = append(ok.HeadersToRemove, "headgate-pass")
	}
	for name, values := range h {
		switch name {
		case forwardauth.AdmittedHeader, forwardauth.PassHeader, "Cache-Control":
			continue
		}
		for _, v := range values {
			ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, set(name, v, true))
		}
	}
	if len(h["Set-Cookie"]) > 0 { // no cache may keep an answer with a pass
		ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, set("Cache-Control", "no-store", false))
	}
	return &auth.CheckResponse{Status: &rpcstatus.Status{Code: int32(codes.OK)},
		HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: ok}}
}

// denied returns the answer to a request that may not pass: the room's answer to the visitor.
func denied(a *recorded) *auth.CheckResponse {
	no := &auth.DeniedHttpResponse{
		Status: &types.HttpStatus{Code: types.StatusCode(a.code)},
		Body:   strings.ToValidUTF8(a.body.String(), "?"), // a string of protobuf is UTF-8
	}
	for name, values := range a.header {
		if name == "Content-Length" {
			continue
		}
		for _, v := range values {
			no.Headers = append(no.Headers, set(name, v, true))
		}
	}
	return &auth.CheckResponse{Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: no}}
}

// set returns a header that Envoy sets, or adds to others of its name.
func set(name, value string, add bool) *core.HeaderValueOption {
	o := &core.HeaderValueOption{Header: &core.HeaderValue{Key: name, Value: value},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
	if add {
		o.AppendAction = core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	}
	return o
}

// recorded is an answer in memory.
type recorded struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *recorded) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorded) WriteHeader(code int) {
	if a.code == 0 && code >= 200 {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *recorded) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}
