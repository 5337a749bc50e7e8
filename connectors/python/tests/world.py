"""A real headgate, a shop that asks it through a recording wire, and visitors."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
PATIENCE = float(os.environ.get("PATIENCE", "120"))  # seconds until a wait has failed, on any machine


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.01)
    return value


class Process:
    def __init__(self, args: list[str], log: Path, fds: tuple[int, ...] = ()) -> None:
        self.log = log
        self._file: IO[bytes] = log.open("ab")
        self.popen = subprocess.Popen(args, stdout=self._file, stderr=subprocess.STDOUT, pass_fds=fds, cwd=log.parent)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.send_signal(how)
        self.popen.wait()
        self._file.close()


class Headgate:
    """A headgate with rooms for decide.listen."""

    def __init__(self, binary: str, folder: Path, rooms: str) -> None:
        self._binary, self._folder = binary, folder
        self._config = folder / "headgate.yaml"
        listen = "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndecide: {listen: '127.0.0.1:0'}\n"
        trusted = f"trusted_proxies: [127.0.0.1]\ndata: {folder}/data\nrooms:\n{rooms}"
        self._config.write_text(listen + trusted)
        self.start()

    def start(self) -> None:
        log = self._folder / "headgate.log"
        log.write_bytes(b"")
        self.process = Process([self._binary, "run", "--config", str(self._config)], log)
        said = wait_for("headgate's addresses", lambda: re.search(r"proxies +http://(\S+)", self._said()))
        self.decide = said[1]
        admin = re.search(r"operators +http://([^/\s]+)", self._said())
        assert admin
        wait_for("headgate is ready", lambda: _status(admin[1], "/readyz") == 200)

    def freeze(self) -> None:
        """Stops the process, and waits until all of it stands still."""
        self.process.popen.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.popen.pid}/task")
        wait_for("headgate stands still", lambda: all(_state(task) == "T" for task in tasks.iterdir()))

    def thaw(self) -> None:
        self.process.popen.send_signal(signal.SIGCONT)

    def _said(self) -> str:
        assert self.process.popen.poll() is None, self.process.log.read_text()
        return self.process.log.read_text()


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(") ")[2][0]


def _status(addr: str, path: str) -> int:
    connection = http.client.HTTPConnection(addr, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


@dataclass
class Asked:
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [v for n, v in self.headers if n == name]


class Wire:
    """Stands between the shop and headgate, and records what the shop asks."""

    def __init__(self, headgate: Headgate) -> None:
        self.asked: list[Asked] = []
        self.batches_may_pass = threading.Event()
        self.batches_may_pass.set()
        self.cut = False  # questions get no answer; batches do
        self.leases = 0  # batches that were answered with a lease
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                lines = [(name.lower(), value) for name, value in self.headers.items()]
                wire.asked.append(Asked(self.command, self.path, lines, body))
                if wire.cut and self.path == "/connect":
                    self.close_connection = True
                    return
                if self.path == "/batch":
                    wire.batches_may_pass.wait()
                try:
                    connection = http.client.HTTPConnection(headgate.decide, timeout=PATIENCE)
                    connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        connection.putheader(name, value)
                    connection.endheaders(body or None)
                    answer = connection.getresponse()
                    self.send_response_only(answer.status)
                    for name, value in answer.getheaders():
                        self.send_header(name, value)
                    self.end_headers()
                    if "Transfer-Encoding" in answer.headers:
                        for part in iter(lambda: answer.read(65536), b""):
                            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                        self.wfile.write(b"0\r\n\r\n")
                    else:
                        body = answer.read()
                        self.wfile.write(body)
                        wire.leases += self.path == "/batch" and "lease" in json.loads(body)
                    connection.close()
                except (OSError, http.client.HTTPException):
                    self.close_connection = True

            do_POST = do_GET

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 1024

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def count(self, path: str) -> int:
        return sum(asked.path == path for asked in self.asked)

    def close(self) -> None:
        self.batches_may_pass.set()
        self._server.shutdown()
        self._server.server_close()


class Shop:
    """shop.py under a server."""

    def __init__(self, server: str, decide: str, folder: Path, **options: object) -> None:
        self.server = server
        self._log = folder / "served"
        self._log.touch()
        self._released = folder / "released"
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listens:
            self.addr = f"127.0.0.1:{listens.getsockname()[1]}"
            args = [sys.executable, str(HERE / "shop.py"), server, str(listens.fileno()), decide, str(self._log)]
            args += [f"{name}={json.dumps(value)}" for name, value in options.items()]
            self.process = Process(args, folder / "shop.log", (listens.fileno(),))

    def release(self) -> None:
        self._released.touch()

    def served(self) -> list[dict[str, Any]]:
        """What the application has served, in order."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def raw(self, request: bytes) -> bytes:
        """Sends bytes, and returns what comes until the end of the connection."""
        host, port = self.addr.split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as s:
            s.sendall(request)
            got = b""
            try:
                while part := s.recv(65536):
                    got += part
            except ConnectionResetError:
                pass
            return got

    def stop(self) -> None:
        self.process.stop(signal.SIGTERM)


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers = response.status, response.getheaders()
        self.body = response.read()

    def all(self, name: str) -> list[str]:
        return [v for n, v in self.headers if n.lower() == name.lower()]

    @property
    def inside(self) -> bool:
        return self.status == 200 and self.body == b"the shop\n"

    @property
    def session(self) -> str:
        """The session by the pass that the application got."""
        return "".join(self.all("x-session"))

    @property
    def waits(self) -> bool:
        """The room has answered, and not the connector itself."""
        return self.status == 503 and b'"headgate"' in self.body

    @property
    def down(self) -> bool:
        return self.status == 503 and self.body.startswith(b"The waiting room does not answer")

    @property
    def headgate(self) -> dict[str, Any]:
        """headgate's own part of an answer in JSON to a visitor that waits."""
        found: dict[str, Any] = json.loads(self.body)["headgate"]
        return found


class Visitor:
    """A browser with cookies."""

    def __init__(self, shop: Shop, name: str = "") -> None:
        self.shop, self.name = shop, name
        self.cookies: dict[str, str] = {}
        self._connection = http.client.HTTPConnection(shop.addr, timeout=PATIENCE)

    def ask(self, path: str = "/", method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        """Sends a request, and keeps the cookies of the answer. In names of headers, _ stands for a dash."""
        c = self._connection
        c.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        sent = {"host": "shop.example", "accept": "application/json", "x_visitor": self.name, **headers}
        for name, value in sent.items():
            c.putheader(name.replace("_", "-"), value)
        if self.cookies:
            c.putheader("cookie", "; ".join(f"{n}={v}" for n, v in self.cookies.items()))
        if body is not None:
            c.putheader("content-length", str(len(body)))
        c.endheaders(body)
        answer = Answer(c.getresponse())
        for line in answer.all("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    def close(self) -> None:
        self._connection.close()
