package headgate

import (
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/internal/callkey"
	"github.com/headgate/headgate/internal/wire"
)

// A KeyPart is one thing of a request by which those who share a limit are told apart: its Kind
// is one of those below, Name that of the header or the cookie, Prefix4 and Prefix6 how many
// bits of an address count, default 32 and 64.
type KeyPart = callkey.Part

// The kinds of key parts.
const (
	KeyClientAddress = callkey.ClientAddress
	KeyHeader        = callkey.Header
	KeyCookie        = callkey.Cookie
	KeyPath          = callkey.Path // the clean reading: decoded, without ;x, //, /./ and /../
	KeyMethod        = callkey.Method
	KeyHost          = callkey.Host // lower case, without the port
	// KeyVisit is the Stay.ID of the visit, where a Room is in front of LimitMiddleware. A request that
	// belongs to no visit is counted by the client's address.
	KeyVisit = callkey.Visit
)

// RequestKey is whose use of a limit a request counts for. No parts are one key for all: "".
//
// A single part is the value as it is; several are joined by |, with | and % written %7c and
// %25 in them, so that no value can be taken for two. A part that is missing is ~, and ~ in
// front of a value is doubled. What is longer than MaxKey becomes ~sha256: and its hash.
// A header or a cookie that came several times with different values is ~several, whatever
// they are: origins take the first, or the last, and who adds others would be somebody else.
//
// addr gives the client's address; nil is that of the connection.
func RequestKey(parts []KeyPart, r *http.Request, addr func(*http.Request) netip.Addr) string {
	if addr == nil {
		addr = wire.RemoteAddr
	}
	return callkey.Of(parts, callkey.Call{Request: r, Addr: addr})
}
