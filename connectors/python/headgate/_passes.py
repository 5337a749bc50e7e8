"""Verifies signed passes."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import jwt

_COMPACT = re.compile(r"([A-Za-z0-9_-]+\.){2}[A-Za-z0-9_-]+")
_HELD = 300.0  # seconds for which keys are used; headgate signs with a key 6 minutes after it is served
_AGAIN = 10.0  # seconds after which an unknown key is asked for again
_SKEW = 60.0  # seconds that the clock of headgate may be ahead


@dataclass(frozen=True)
class Claims:
    room: str
    session: str
    expires: float


class Passes:
    """May be used by many threads at once. fetch returns the JWK Set."""

    def __init__(self, fetch: Callable[[], bytes], rooms: Collection[str]) -> None:
        self._fetch, self._rooms = fetch, rooms
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = float("-inf")

    def verify(self, token: str, now: float) -> Claims | None:
        """Returns what a pass states at a time. None: it is not valid."""
        if not _COMPACT.fullmatch(token):  # jwt takes more
            return None
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") != "ES256" or header.get("typ") != "headgate-pass+jwt":
                return None
            claims = jwt.decode(
                token,
                self._key(header.get("kid")),
                algorithms=["ES256"],
                issuer="headgate",
                options={"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False},
            )
        except (jwt.PyJWTError, LookupError, ValueError, OSError, http.client.HTTPException):
            return None
        if not _is_number(claims.get("iat")) or claims["iat"] > now + _SKEW:
            return None
        if not _is_number(claims.get("exp")) or claims["exp"] <= now:
            return None
        room, session = claims.get("aud"), claims.get("sub")
        if not isinstance(room, str) or not isinstance(session, str) or not room or not session:
            return None
        return Claims(room, session, claims["exp"]) if not self._rooms or room in self._rooms else None

    def _key(self, kid: object) -> jwt.PyJWK:
        with self._lock:
            age = time.monotonic() - self._fetched
            if age > _HELD or (kid not in self._keys and age > _AGAIN):
                self._fetched, self._keys = time.monotonic(), {}
                for key in json.loads(self._fetch())["keys"]:
                    self._keys[key["kid"]] = jwt.PyJWK(key, algorithm="ES256")
            if not isinstance(kid, str):
                raise LookupError("no kid")
            return self._keys[kid]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read(token: str) -> Claims:
    """Returns what a pass states, without a check: for one that came from headgate itself."""
    claims = jwt.decode(token, options={"verify_signature": False})
    return Claims(claims["aud"], claims["sub"], claims["exp"])
