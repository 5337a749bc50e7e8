package envoy

import (
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/internal/wire"
)

// peerAt returns a peer with an address.
func peerAt(address string, port uint32) *auth.AttributeContext_Peer {
	return &auth.AttributeContext_Peer{Labels: map[string]string{"a": "b"}, Address: &core.Address{
		Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: address,
			PortSpecifier: &core.SocketAddress_PortValue{PortValue: port}}}}}
}

// FuzzQuestion: a question is read as package proto reads it, and the same messages are rejected.
func FuzzQuestion(f *testing.F) {
	whole, err := proto.Marshal(&auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source: peerAt("192.0.2.7", 4711), Destination: peerAt("192.0.2.1", 80),
		ContextExtensions: map[string]string{"a": "b"}, TlsSession: &auth.AttributeContext_TLSSession{Sni: "x"},
		MetadataContext: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"a": {
			Fields: map[string]*structpb.Value{"b": structpb.NewStringValue("c")}}}},
		Request: &auth.AttributeContext_Request{Time: &timestamppb.Timestamp{Seconds: 1e9},
			Http: &auth.AttributeContext_HttpRequest{Id: "1", Method: "GET", Path: "/a?b", Host: "shop.example",
				Scheme: "https", Size: -1, Protocol: "HTTP/2", Body: "x", RawBody: []byte{0xff}, Headers: map[string]string{
					":path": "/a?b", "cookie": "a=b", "accept-encoding": "gzip", "x_original_url": "/", "": "x"},
				HeaderMap: &core.HeaderMap{Headers: []*core.HeaderValue{{Key: "a", Value: "b"}}}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(slices.Clone(whole), whole...))
	within := func(field []byte, numbers ...protowire.Number) []byte {
		for _, n := range numbers {
			field = protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), field)
		}
		return field
	}
	inHTTP := func(field []byte) []byte { return within(field, 2, 4, 1) } // a field of HttpRequest
	for n := range protowire.Number(15) {
		f.Add(inHTTP(protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), "\xff")))
		f.Add(inHTTP(protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), 7)))
		f.Add(inHTTP(protowire.AppendTag(nil, n, protowire.StartGroupType)))
	}
	f.Add(inHTTP([]byte("\x1a\x06\x0a\x01a\x12\x01\xff")))         // a header that is not UTF-8
	f.Add(inHTTP([]byte("\x1a\x05\x0a\x01a\x0a\x00\x1a\x00")))     // a name twice, an empty entry
	f.Add(inHTTP(append(protowire.AppendVarint(nil, 1<<32|2), 0))) // a number that no field can have
	f.Add(within([]byte("\x0a\x01"), 11, 1))                       // metadata that is cut short
	f.Add(within(append(within([]byte("\x12\x01a"), 1, 1, 1),      // an address in two parts
		within([]byte("\x18\x07"), 1, 1, 1)...), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var want auth.CheckRequest
		var q question
		e1, e2 := proto.Unmarshal(b, &want), q.read(b)
		if (e1 == nil) != (e2 == nil) {
			t.Fatalf("proto: %v, question: %v", e1, e2)
		}
		if e1 != nil {
			return
		}
		h := want.GetAttributes().GetRequest().GetHttp()
		if q.method != h.GetMethod() || q.path != h.GetPath() || q.host != h.GetHost() ||
			q.scheme != h.GetScheme() {
			t.Errorf("%q %q %q %q, want %v", q.method, q.path, q.host, q.scheme, h)
		}
		from := q.source.GetAddress().GetSocketAddress()
		old := want.GetAttributes().GetSource().GetAddress().GetSocketAddress()
		if from.GetAddress() != old.GetAddress() || from.GetPortValue() != old.GetPortValue() {
			t.Errorf("from %v, want %v", from, old)
		}
		names := map[string]int{}
		for name := range h.GetHeaders() {
			names[http.CanonicalHeaderKey(name)]++
		}
		for name, value := range h.GetHeaders() {
			if (wire.OverridesURL(name) || wire.OverridesMethod(name) || wire.AliasOfOwned(name)) !=
				slices.Contains(q.removed, name) {
				t.Errorf("removed are %q; and %q?", q.removed, name)
			}
			key := http.CanonicalHeaderKey(name)
			skipped := key == "" || key[0] == ':' || wire.OverridesURL(key) || key == "Accept-Encoding"
			switch got := q.header[key]; {
			case skipped && got != nil, !skipped && len(got) != 1,
				!skipped && names[key] == 1 && got[0] != value:
				t.Errorf("%q is %q, want %q", key, got, value)
			}
		}
		if len(q.header) > len(names) {
			t.Errorf("headers %q, want %q", q.header, h.GetHeaders())
		}
	})
}

// TestManySpellings: reading many spellings of a header that is removed takes about as long as reading
// as many other headers. It took a hundred times as long when each was compared with all before it.
func TestManySpellings(t *testing.T) {
	read := func(first string) (least time.Duration, removed int) {
		var b []byte
		for i := range 20_000 {
			name := []byte(first + "_http_method_override")
			for j := range 15 { // one letter for each bit of i
				if at := len(name) - 1 - j; i>>j&1 == 1 && name[at] != '_' {
					name[at] -= 'a' - 'A'
				} else if i>>j&1 == 1 {
					name[at] = '-'
				}
			}
			b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType),
				protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), name))
		}
		for _, n := range []protowire.Number{2, 4, 1} {
			b = protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
		}
		least = math.MaxInt64
		for range 3 {
			var q question
			began := time.Now()
			if err := q.read(b); err != nil {
				t.Fatal(err)
			}
			least, removed = min(least, time.Since(began)), len(q.removed)
		}
		return least, removed
	}
	spellings, removed := read("x")
	others, none := read("y")
	if removed != 20_000 || none != 0 {
		t.Errorf("%d and %d are removed", removed, none)
	}
	if t.Logf("%v, others %v", spellings, others); spellings > 20*others {
		t.Errorf("%v, %.0f times as long as others", spellings, float64(spellings)/float64(others))
	}
}
