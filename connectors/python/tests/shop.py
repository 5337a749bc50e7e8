"""python shop.py SERVER FD DECIDE LOG [OPTION=VALUE ...]: a shop with a waiting room, on a socket that listens.

It writes each request that it serves to LOG, one JSON object a line, in order: it is the judge of the tests."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jwt

import headgate

SERVER, DECIDE, LOG = sys.argv[1], sys.argv[3], Path(sys.argv[4])
OPTIONS: dict[str, Any] = {name: json.loads(value) for name, _, value in (a.partition("=") for a in sys.argv[5:])}
PAGE = {"Cache-Control": "public, max-age=60", "Expires": "Thu, 01 Jan 2099 00:00:00 GMT"}


def log(event: str, path: str, headers: Iterable[tuple[str, str]], **more: object) -> str:
    """Writes a line, and returns the session of the request."""
    lines = [(n.lower(), v) for n, v in headers]
    names = dict(lines)
    session = ""
    if pass_ := names.get("headgate-pass"):
        session = jwt.decode(pass_, options={"verify_signature": False}).get("sub", "")
    line = {"event": event, "visitor": names.get("x-visitor", ""), "path": path, "session": session, "headers": lines}
    text = (json.dumps({**line, **more}) + "\n").encode()
    with open(LOG, "ab", buffering=0) as f:
        f.write(text)  # at once: lines of several threads and processes do not mix
    return session


def released() -> bool:
    return LOG.with_name("released").exists()


def asgi() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocket

    async def page(request: Request) -> Response:
        body = await request.body()
        session = log("page", request.scope["path"], request.headers.items(), method=request.method, body=len(body))
        return PlainTextResponse("the shop\n", headers={**PAGE, "X-Session": session})

    async def buy(request: Request) -> Response:
        log("leave", request.scope["path"], request.headers.items())
        ended = request.scope["headgate"].end()
        if "wait" in request.query_params:
            return JSONResponse({"ended": await asyncio.wrap_future(ended)})
        return JSONResponse({})

    async def stream(request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first\n"
            while not released():
                await asyncio.sleep(0.01)
            yield b"second\n"

        log("page", request.scope["path"], request.headers.items())
        return StreamingResponse(parts())

    async def chat(ws: WebSocket) -> None:
        log("socket", ws.scope["path"], ws.headers.items())
        await ws.accept()
        await ws.send_text(await ws.receive_text())
        await ws.close()

    methods = ["GET", "HEAD", "POST", "OPTIONS"]
    routes = [
        Route("/buy", buy, methods=["POST"]),
        Route("/stream", stream),
        WebSocketRoute("/{path:path}", chat),
        Route("/{path:path}", page, methods=methods),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(headgate.ASGIMiddleware, decide=DECIDE, **OPTIONS)
    return app


def wsgi() -> Any:
    from flask import Flask, Response, jsonify, request

    app = Flask(__name__)

    @app.post("/buy")
    def buy() -> Response:
        log("leave", request.environ["PATH_INFO"], request.headers.items())
        ended = request.environ["headgate"].end()
        return jsonify({"ended": ended.result()} if "wait" in request.args else {})

    @app.get("/stream")
    def stream() -> Response:
        def parts() -> Iterator[bytes]:
            yield b"first\n"
            while not released():
                time.sleep(0.01)
            yield b"second\n"

        log("page", request.environ["PATH_INFO"], request.headers.items())
        return Response(parts())

    @app.route("/", defaults={"path": ""}, methods=["GET", "POST", "OPTIONS"])
    @app.route("/<path:path>", methods=["GET", "POST", "OPTIONS"])
    def page(path: str) -> Response:
        sent = request.environ["PATH_INFO"]
        session = log("page", sent, request.headers.items(), method=request.method, body=len(request.data))
        return Response("the shop\n", headers={**PAGE, "X-Session": session}, mimetype="text/plain")

    app.wsgi_app = headgate.WSGIMiddleware(app.wsgi_app, decide=DECIDE, **OPTIONS)  # type: ignore[method-assign]
    return app


def django() -> None:
    """Makes the module the settings and the views of a project of Django."""
    from django.conf import settings
    from django.core.handlers.asgi import ASGIRequest
    from django.http import HttpRequest, HttpResponse, JsonResponse
    from django.urls import re_path

    def visit(request: HttpRequest) -> Any:
        return request.scope["headgate"] if isinstance(request, ASGIRequest) else request.META["headgate"]

    def buy(request: HttpRequest) -> HttpResponse:
        log("leave", request.path_info, request.headers.items())
        ended = visit(request).end()
        return JsonResponse({"ended": ended.result()} if "wait" in request.GET else {})

    def page(request: HttpRequest) -> HttpResponse:
        headers = request.headers.items()
        session = log("page", request.path_info, headers, method=request.method, body=len(request.body))
        return HttpResponse("the shop\n", headers={**PAGE, "X-Session": session}, content_type="text/plain")

    urls = (re_path("^buy$", buy), re_path("", page))
    middleware = [f"django.middleware.{name}Middleware" for name in ("security.Security", "common.Common")]
    settings.configure(ALLOWED_HOSTS=["shop.example"], ROOT_URLCONF=urls, MIDDLEWARE=middleware)


def django_asgi() -> Any:
    from django.core.asgi import get_asgi_application

    django()
    return headgate.ASGIMiddleware(get_asgi_application(), decide=DECIDE, **OPTIONS)


def django_wsgi() -> Any:
    from django.core.wsgi import get_wsgi_application

    django()
    return headgate.WSGIMiddleware(get_wsgi_application(), decide=DECIDE, **OPTIONS)


def serve_uvicorn(sock: socket.socket, app: Callable[[], Any] = asgi) -> None:
    import uvicorn

    config = uvicorn.Config(app(), log_level="warning", proxy_headers=False, timeout_keep_alive=600)
    uvicorn.Server(config).run(sockets=[sock])


def serve_waitress(sock: socket.socket, app: Callable[[], Any] = wsgi) -> None:
    import waitress

    waitress.serve(app(), sockets=[sock], threads=8, channel_timeout=600)


def serve_django_uvicorn(sock: socket.socket) -> None:
    serve_uvicorn(sock, django_asgi)


def serve_django_waitress(sock: socket.socket) -> None:
    serve_waitress(sock, django_wsgi)


def serve_gunicorn(sock: socket.socket) -> None:
    from gunicorn.app.base import BaseApplication

    class Shop(BaseApplication):  # type: ignore[misc]
        def load_config(self) -> None:
            self.cfg.set("bind", f"fd://{sock.fileno()}")
            self.cfg.set("worker_class", "gthread")
            self.cfg.set("threads", 8)
            self.cfg.set("keepalive", 600)
            self.cfg.set("graceful_timeout", 1)

        def load(self) -> Any:
            return wsgi()

    Shop().run()


def serve_merging(sock: socket.socket) -> None:
    """A server that merges X_Forwarded_For into X-Forwarded-For, and tells no raw path."""
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), WSGIRequestHandler, bind_and_activate=False)
    server.socket.close()
    server.socket = sock
    server.server_name, server.server_port = "127.0.0.1", sock.getsockname()[1]
    server.setup_environ()
    server.set_app(wsgi())
    server.serve_forever()


if __name__ == "__main__":
    os.environ.pop("GUNICORN_CMD_ARGS", None)
    globals()["serve_" + SERVER](socket.socket(fileno=int(sys.argv[2])))
