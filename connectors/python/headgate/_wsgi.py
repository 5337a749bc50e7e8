from __future__ import annotations

import http.client
import io
import re
from collections.abc import Callable, Iterable
from typing import Any

from ._client import Answer
from ._connector import Admitted, Middleware, short
from ._question import (
    MOST_BODY,
    Header,
    Question,
    Refused,
    for_application,
    for_visitor,
    question,
    relayed,
    target,
)

Environ = dict[str, Any]

# These servers drop X_Forwarded_For. Others merge it into X-Forwarded-For, so that a visitor could choose an
# address: there, only the connection tells it.
_CAREFUL = re.compile(r"gunicorn/(2[2-9]|[3-9]\d)|waitress|Werkzeug|mod_wsgi")


class WSGIMiddleware(Middleware):
    """Puts a waiting room in front of a WSGI application. It must be the first middleware."""

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            q = _question(environ)
            result = self._connector.local(q) or self._connector.ask(q)
        except Refused as refused:
            result = short(refused.status, refused.text)
        if isinstance(result, Answer):
            status = f"{result.status} {http.client.responses.get(result.status, 'Unknown')}"
            start_response(status, relayed(result.headers))
            return result
        return self._serve(result, environ, start_response)

    def _serve(self, admitted: Admitted, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        pass_, bare = admitted.visit.pass_ if admitted.visit else "", admitted.kind == "bare"
        kept = {name for name, _ in for_application(_headers(environ), "", admitted.kind)}
        inner = {k: v for k, v in environ.items() if not k.startswith("HTTP_") or _name(k) in kept}
        inner["headgate"] = admitted.visit
        if pass_:
            inner["HTTP_HEADGATE_PASS"] = pass_
        if bare:
            inner["wsgi.input"] = io.BytesIO()

        def starts(status: str, headers: list[Header], *exc_info: Any) -> Any:
            write = start_response(status, for_visitor(headers, admitted.take_cookies(), bare), *exc_info)
            return (lambda _: None) if bare else write

        answer: Iterable[bytes] = self.app(inner, starts)
        if not bare:
            return answer
        try:
            for _ in answer:
                pass
        finally:
            if hasattr(answer, "close"):
                answer.close()
        return []


def _question(environ: Environ) -> Question:
    if "HTTP_SCRIPT_NAME" in environ or "HTTP_PATH_INFO" in environ:  # gunicorn may take the path from these
        raise Refused(400, "The path of this request is unclear.")
    headers = _headers(environ)
    if not _CAREFUL.match(environ.get("SERVER_SOFTWARE", "")):
        headers = [(n, v) for n, v in headers if n != "x-forwarded-for"]
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    asked = target(raw and raw.partition("?")[0], path, environ.get("QUERY_STRING", ""), "latin-1")
    scheme, peer = environ["wsgi.url_scheme"], environ.get("REMOTE_ADDR", "")
    q = question(environ["REQUEST_METHOD"], scheme, asked, peer, headers)
    return q.with_body(_body(environ)) if q.own else q


def _body(environ: Environ) -> bytes:
    """Returns a body, or as much of it as shows that it is too long."""
    length = environ.get("CONTENT_LENGTH")
    if not length and not environ.get("wsgi.input_terminated"):
        return b""
    body: bytes = environ["wsgi.input"].read(min(int(length or MOST_BODY + 1), MOST_BODY + 1))
    return body


def _headers(environ: Environ) -> list[Header]:
    headers = [(_name(k), v) for k, v in environ.items() if k.startswith("HTTP_") and isinstance(v, str)]
    more = (("content-type", environ.get("CONTENT_TYPE")), ("content-length", environ.get("CONTENT_LENGTH")))
    return headers + [(name, value) for name, value in more if value]


def _name(key: str) -> str:
    return key.removeprefix("HTTP_").replace("_", "-").lower()
