package headgate

import (
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/internal/callkey"
	"github.com/headgate/headgate/internal/wire"
)

// A KeyPart is one property of a request that becomes part of its key. Kind is one of the constants
// below, and Name is the name of the header or cookie. Prefix4 and Prefix6 are the number of bits
// of an address that count, default 32 and 64.
type KeyPart = callkey.Part

// Kinds of key parts.
const (
	KeyClientAddress = callkey.ClientAddress
	KeyHeader        = callkey.Header
	KeyCookie        = callkey.Cookie
	KeyPath          = callkey.Path // decoded and cleaned: without ;x, //, /./ and /../
	KeyMethod        = callkey.Method
	KeyHost          = callkey.Host // lower case, without the port
	// KeySession is the Session.ID of the session, if a Room is in front of LimitMiddleware. A
	// request that belongs to no session is counted by the client's address.
	KeySession = callkey.Session
)

// RequestKey returns the key under which a limit counts a request. Without parts the key is "", the
// same for all requests.
//
// A single part is the value as it is. Several parts are joined by |, and | and % within them are
// written as %7c and %25, so that different values never give the same key. A missing part is ~,
// and a ~ at the start of a value is doubled. A key longer than MaxKey becomes ~sha256: and its
// hash. A header or a cookie that occurs several times with different values is ~several, whatever
// the values are: some origins use the first value and others the last, so a client that adds
// values could otherwise choose the key under which it is counted.
//
// addr returns the client's address; nil uses the address of the connection.
func RequestKey(parts []KeyPart, r *http.Request, addr func(*http.Request) netip.Addr) string {
	if addr == nil {
		addr = wire.RemoteAddr
	}
	return callkey.Of(parts, callkey.Call{Request: r, Addr: addr})
}
