from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
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

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_STARTS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
_THREADS = 64  # questions at the same time


class ASGIMiddleware(Middleware):
    """Puts a waiting room in front of an ASGI application. It must be the first middleware."""

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, "headgate")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = _decode(scope["headers"])
        try:
            q = _question(scope, headers)
            if q.own and scope["type"] == "http":
                q = q.with_body(await _body(receive))
            result = self._connector.local(q) or await self._run(self._connector.ask, q)
        except Refused as refused:
            result = short(refused.status, refused.text)
        if isinstance(result, Admitted):
            await self._serve(result, headers, scope, receive, send)
        elif scope["type"] == "http":
            await self._relay(result, "http", send)
        else:
            await receive()  # websocket.connect
            if "websocket.http.response" in (scope.get("extensions") or {}):
                await self._relay(result, "websocket.http", send)
            else:  # the server answers 403
                result.close()
                await send({"type": "websocket.close", "code": 1013})

    async def _run(self, call: Callable[..., Any], *args: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    async def _serve(
        self, admitted: Admitted, headers: list[Header], scope: Message, receive: Receive, send: Send
    ) -> None:
        pass_, bare = admitted.visit.pass_ if admitted.visit else "", admitted.kind == "bare"
        kept = for_application(headers, pass_, admitted.kind)
        inner = {**scope, "headers": _encode(kept), "headgate": admitted.visit}
        if bare:
            inner["extensions"] = {}  # there are other ways to send a body

        async def answers(message: Message) -> None:
            if message["type"] in _STARTS:
                own = for_visitor(_decode(message.get("headers") or ()), admitted.take_cookies(), bare)
                message = {**message, "headers": _encode(own)}
            elif bare:
                message = {**message, "body": b""}
            await send(message)

        async def receives() -> Message:
            message = await receive()
            return {**message, "body": b""} if bare else message

        await self.app(inner, receives, answers)

    async def _relay(self, answer: Answer, kind: str, send: Send) -> None:
        try:
            headers = _encode(relayed(answer.headers))
            await send({"type": kind + ".response.start", "status": answer.status, "headers": headers})
            while part := await self._run(answer.read):
                await send({"type": kind + ".response.body", "body": part, "more_body": True})
            await send({"type": kind + ".response.body", "body": b""})
        finally:
            answer.close()


def _question(scope: Message, headers: list[Header]) -> Question:
    socket = scope["type"] == "websocket"
    raw, query = scope.get("raw_path"), scope.get("query_string") or b""
    asked = target(None if raw is None else raw.decode("latin-1"), scope["path"], query.decode("latin-1"), "utf-8")
    client = scope.get("client")
    method = "GET" if socket else scope["method"]
    return question(method, scope.get("scheme") or "http", asked, client[0] if client else "", headers, upgrade=socket)


async def _body(receive: Receive) -> bytes:
    """Returns a body, or as much of it as shows that it is too long."""
    body, more = b"", True
    while more and len(body) <= MOST_BODY:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "The request has ended.")
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _decode(headers: Any) -> list[Header]:
    return [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in headers]


def _encode(headers: list[Header]) -> list[tuple[bytes, bytes]]:
    return [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers]
