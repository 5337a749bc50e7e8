package envoy

import (
	"errors"
	"net/http"
	"slices"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/internal/wire"
)

// A question is what a CheckRequest says about the visitor's request. It is read from the wire,
// because package proto spends half the time of a decision on the map of headers. It accepts the same
// messages as package proto.
type question struct {
	method, path, host, scheme string

	header  http.Header
	values  []string // all values of header
	removed []string // headers that could mean another request for the origin
	source  auth.AttributeContext_Peer
}

var errMalformed = errors.New("it is no message of protobuf, or a text in it is not UTF-8")

// read reads a CheckRequest.
func (q *question) read(b []byte) error {
	q.header, q.values = make(http.Header, 16), make([]string, 0, 16)
	err := fields(b, func(n protowire.Number, v []byte) error {
		if n == 1 {
			return fields(v, q.attributes)
		}
		return nil
	})
	slices.Sort(q.removed)
	q.removed = slices.Compact(q.removed) // a name that is sent twice
	return err
}

// attributes reads a field of AttributeContext.
func (q *question) attributes(n protowire.Number, v []byte) error {
	switch n {
	case 1:
		return merge(v, &q.source)
	case 2: // the destination
		return merge(v, &auth.AttributeContext_Peer{})
	case 4:
		return fields(v, q.request)
	case 10: // an entry of context_extensions
		_, _, err := pair(v)
		return err
	case 11, 13: // metadata_context, route_metadata_context
		return merge(v, &core.Metadata{})
	case 12:
		return merge(v, &auth.AttributeContext_TLSSession{})
	}
	return nil
}

// request reads a field of AttributeContext.Request.
func (q *question) request(n protowire.Number, v []byte) error {
	switch n {
	case 1:
		return merge(v, &timestamppb.Timestamp{})
	case 2:
		return fields(v, q.http)
	}
	return nil
}

// http reads a field of AttributeContext.HttpRequest.
func (q *question) http(n protowire.Number, v []byte) error {
	switch n {
	case 2:
		return text(v, &q.method)
	case 3:
		return q.add(v)
	case 4:
		return text(v, &q.path)
	case 5:
		return text(v, &q.host)
	case 6:
		return text(v, &q.scheme)
	case 1, 7, 8, 10, 11: // texts that decide nothing
		if !utf8.Valid(v) {
			return errMalformed
		}
	case 13:
		return merge(v, &core.HeaderMap{})
	}
	return nil
}

// add reads an entry of the map of headers.
func (q *question) add(v []byte) error {
	name, value, err := pair(v)
	if err != nil {
		return err
	}
	overrides := wire.OverridesURL(name)
	if overrides || wire.OverridesMethod(name) || wire.AliasOfOwned(name) {
		q.removed = append(q.removed, name)
	}
	name = http.CanonicalHeaderKey(name)
	if name == "" || name[0] == ':' || overrides || name == "Accept-Encoding" { // the body must be text
		return nil
	}
	q.values = append(q.values, value)
	last := len(q.values)
	q.header[name] = q.values[last-1 : last : last]
	return nil
}

// pair reads an entry of a map from string to string.
func pair(b []byte) (key, value string, err error) {
	err = fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case 1:
			return text(v, &key)
		case 2:
			return text(v, &value)
		}
		return nil
	})
	return key, value, err
}

// text sets a string of protobuf.
func text(b []byte, to *string) error {
	if !utf8.Valid(b) {
		return errMalformed
	}
	*to = string(b)
	return nil
}

// merge reads a message into another one: a field that is sent twice is one message.
func merge(b []byte, m proto.Message) error {
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, m)
}

// fields calls use for each field of a message that has bytes. Package proto takes a known field with
// another wire type as an unknown one, too.
func fields(b []byte, use func(n protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		if size < 0 {
			return errMalformed
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[n:])
			if err := use(num, v); err != nil {
				return err
			}
		}
		b = b[n+size:]
	}
	return nil
}
