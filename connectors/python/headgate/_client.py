"""HTTP to headgate, by the standard library: a few connections that are kept."""

from __future__ import annotations

import http.client
import ssl
from collections import deque
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from ._question import Header

_MOST_IDLE = 64
_CHUNK = 64 << 10


class Answer:
    """An answer. The body must be read, or the answer closed."""

    def __init__(self, status: int, headers: list[Header], body: bytes = b"") -> None:
        self.status, self.headers = status, headers
        self._body = body

    def get(self, name: str) -> str | None:
        values = self.all(name)
        return values[0] if len(values) == 1 else None

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def read(self) -> bytes:
        """Returns the next bytes of the body; none at its end."""
        body, self._body = self._body, b""
        return body

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.read, b"")

    def finish(self) -> bytes:
        """Returns the whole body."""
        body = b"".join(self)
        self.close()
        return body

    def close(self) -> None:
        pass


class _Live(Answer):
    def __init__(self, client: Client, connection: http.client.HTTPConnection, response: http.client.HTTPResponse):
        super().__init__(response.status, response.getheaders())
        self._client, self._connection, self._response = client, connection, response

    def read(self) -> bytes:
        return self._response.read(_CHUNK)

    def close(self) -> None:
        if self._response.isclosed() and not self._response.will_close:
            self._client._keep(self._connection)
        else:
            self._connection.close()


class Client:
    """May be used by many threads at once."""

    def __init__(self, base: str, timeout: float) -> None:
        url = urlsplit(base)
        if url.scheme not in ("http", "https") or not url.hostname or url.path not in ("", "/") or url.query:
            raise ValueError(f"decide={base!r} must be http://HOST:PORT, the address decide.listen of headgate")
        self._host, self._port, self._timeout = url.hostname, url.port, timeout
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._idle: deque[http.client.HTTPConnection] = deque(maxlen=_MOST_IDLE)

    def send(self, method: str, path: str, headers: Iterable[Header], body: bytes | None = None) -> Answer:
        """Raises OSError or http.client.HTTPException. What is sent may be sent again: headgate may have
        closed a kept connection meanwhile."""
        while True:
            try:
                connection, kept = self._idle.pop(), True
            except IndexError:
                connection, kept = self._connect(), False
            try:
                connection.putrequest(method, path, skip_accept_encoding=True)
                for name, value in headers:
                    connection.putheader(name, value)
                if body is not None:
                    connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body)
                return _Live(self, connection, connection.getresponse())
            except Exception as error:
                connection.close()
                if not kept or isinstance(error, (TimeoutError, ValueError)):
                    raise

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
