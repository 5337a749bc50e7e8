"""What a connector asks headgate about a request, and which headers reach the application and the visitor.

Text is latin-1: each character is one byte that arrived. Names of headers are in lower case."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, unquote_to_bytes

Header = tuple[str, str]

_MOST_LINES, _MOST_BYTES = 100, 64 << 10  # of the headers of a request
_MOST_COOKIES = 4 << 10  # bytes of headgate's cookies
MOST_BODY = 64 << 10

_HOP_BY_HOP = frozenset(
    """connection keep-alive proxy-connection proxy-authorization te trailer transfer-encoding upgrade
    http2-settings expect""".split()
)
# headgate reads the request from some of these, so the visitor's own would decide.
_CLAIMS = re.compile(
    r"host|content-length|x-forwarded-.*|x-original-.*|x-rewrite-url|forwarded|headgate-pass|.*[^a-z0-9-].*",
    re.S,
)
# By these, some frameworks take another URL or method than the one that headgate decided on.
_OVERRIDES = re.compile(
    r"x-original-(url|uri|method)|x-rewrite-url|x-http-method(-override)?|x-method-override|script-name|path-info"
)
_ALIASES = re.compile(r"(x-forwarded|x-original|headgate)-.*", re.S)
_COOKIE = re.compile(r"(?:^|(?<=[ ;]))(?:__Host-)?__cfwaitingroom[^;]*")
_PLAIN = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_EXCLUDED = ("/robots.txt", "/favicon.ico")  # by default


class Refused(Exception):
    """The request gets status instead of a question. text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass(frozen=True)
class Question:
    """A visitor's request."""

    method: str
    proto: str
    """http or https."""
    host: str
    target: str
    forwarded_for: str
    headers: tuple[Header, ...]
    """Those that headgate may read."""
    upgrade: bool = False
    """It opens a WebSocket."""
    has_body: bool = False
    body: bytes | None = None
    """Only of a path of headgate's own."""

    def lines(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def own(self) -> bool:
        """headgate serves the path itself."""
        return "/.headgate/" in self.path

    def wire(self) -> list[Header]:
        """The headers of the question to headgate."""
        return [
            *self.headers,
            ("x-forwarded-method", self.method),
            ("x-forwarded-uri", self.target),
            ("x-forwarded-host", self.host),
            ("x-forwarded-proto", self.proto),
            ("x-forwarded-for", self.forwarded_for),
        ]

    def cookies(self) -> list[str]:
        """The visitor's cookies of headgate."""
        return cookies_of(self.lines("cookie"))

    def with_body(self, body: bytes) -> Question:
        if len(body) > MOST_BODY:
            raise Refused(413, "The body of this request is too long.")
        return replace(self, body=body or None)

    def may_be_local(self, folder: str) -> bool:
        """The decision depends on nothing but the session, if the session's room has the folder and there is
        a pass. Any other path may have several readings, and headgate decides about those."""
        path, _, query = self.target.partition("?")
        return (
            _PLAIN.fullmatch(path) is not None
            and not any(segment.endswith(".") for segment in path.split("/"))
            and path not in _EXCLUDED
            and (path == folder or path.startswith(folder.rstrip("/") + "/"))
            and not _UNPRINTABLE.search(query)
            and re.fullmatch("[A-Z]+", self.method) is not None
            and self.method not in ("OPTIONS", "CONNECT", "TRACE")
            and not self.lines("headgate-poll")
        )


def question(
    method: str, scheme: str, target: str, peer: str, headers: Iterable[Header], *, upgrade: bool = False
) -> Question:
    """Returns the question about a request with these header lines. peer is the address of the connection."""
    headers = list(headers)
    if len(headers) > _MOST_LINES or sum(len(n) + len(v) + 4 for n, v in headers) > _MOST_BYTES:
        raise Refused(431, "The headers of this request are too long.")
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1:
        raise Refused(400, "A request must have one Host.")
    named = {token.strip().lower() for n, v in headers if n == "connection" for token in v.split(",")}
    kept = tuple((n, v) for n, v in headers if n not in _HOP_BY_HOP and n not in named and not _CLAIMS.fullmatch(n))
    addresses = [v for n, v in headers if n == "x-forwarded-for"] + [peer or "127.0.0.1"]
    proto = "https" if scheme in ("https", "wss") else "http"
    has_body = any(n == "transfer-encoding" or (n == "content-length" and v.strip() != "0") for n, v in headers)
    return Question(method, proto, hosts[0], target, ", ".join(addresses), kept, upgrade, has_body)


def target(raw: str | None, path: str, query: str, encoding: str) -> str:
    """Returns the target to ask about. path is what the application serves, decoded from encoding. A server
    that tells no raw path tells the application none either: then there is one reading, that of path."""
    if raw is None:
        raw = quote(path, safe="/!$&'()*+,;=:@~", encoding=encoding)
    else:
        decoded = unquote(raw) if encoding == "utf-8" else unquote_to_bytes(raw.encode("latin-1")).decode("latin-1")
        if decoded != path:
            raise Refused(400, "The path of this request is unclear.")
    return raw + "?" + query if query else raw


def key(proto: str, host: str, cookies: Iterable[str]) -> bytes | None:
    """Returns what a session is stored under. None: it is not stored."""
    text = "\n".join([proto, host, *cookies])
    if text.count("\n") < 2 or len(text) > _MOST_COOKIES:
        return None
    return hashlib.sha256(text.encode("latin-1")).digest()


def cookies_of(lines: Iterable[str]) -> list[str]:
    """Returns the cookies of headgate, as name=value, in order."""
    return [c for line in lines for c in _COOKIE.findall(line)]


def with_cookies(cookies: list[str], lines: Iterable[str]) -> list[str]:
    """Returns headgate's cookies of a visitor who has received these Set-Cookie lines."""
    for line in lines:
        new = line.partition(";")[0].strip()
        if _COOKIE.fullmatch(new):
            name = new.partition("=")[0] + "="
            changed = [new if c.startswith(name) else c for c in cookies]
            cookies = changed if new in changed else [*cookies, new]
    return cookies


def for_application(headers: Iterable[Header], pass_: str, kind: str) -> list[Header]:
    """Returns the headers of a request for the application. headgate's pass replaces what the visitor calls
    so, in any spelling. A request that passes because of its path or method may name no other."""
    kept = []
    for name, value in headers:
        plain = re.sub("[^a-z0-9]", "-", name)
        if plain == "headgate-pass" or (plain != name and _ALIASES.fullmatch(plain)):
            continue
        if kind != "session" and (_OVERRIDES.fullmatch(plain) or name == "upgrade"):
            continue
        if kind == "bare" and name in ("cookie", "authorization"):
            continue
        kept.append((name, value))
    return [*kept, ("headgate-pass", pass_)] if pass_ else kept


def for_visitor(headers: Iterable[Header], cookies: list[str], bare: bool) -> list[Header]:
    """Returns the headers of the application's answer, with cookies of headgate. No cache may store those."""
    kept = list(headers)
    if cookies:
        kept = [(n, v) for n, v in kept if n.lower() != "expires" and not _caches(n.lower())]
        kept += [("cache-control", "no-store"), *(("set-cookie", c) for c in cookies)]
    if bare:
        kept = [(n, v) for n, v in kept if n.lower() not in ("set-cookie", "content-length")]
    return kept


def _caches(name: str) -> bool:
    return name.endswith("cache-control") or name in ("surrogate-control", "edge-control", "x-accel-expires")


def relayed(headers: Iterable[Header]) -> list[Header]:
    """Returns the headers of an answer of headgate that belong to the visitor. The server adds Date."""
    return [(n.lower(), v) for n, v in headers if n.lower() not in _HOP_BY_HOP and n.lower() != "date"]
