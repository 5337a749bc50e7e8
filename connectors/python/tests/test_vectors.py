"""connectors/vectors.json, and the parts that see it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from headgate._client import Answer
from headgate._connector import Admitted, Connector, _Entry
from headgate._passes import Passes, read
from headgate._question import Question, Refused, cookies_of, question, target, with_cookies

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors.json").read_text())
KEYS = json.dumps(VECTORS["jwks"]).encode()


@pytest.mark.parametrize("case", VECTORS["tokens"], ids=lambda case: case["name"])
def test_tokens(case: dict[str, Any]) -> None:
    passes = Passes(lambda: KEYS, VECTORS["rooms"])
    claims = passes.verify(case["token"], VECTORS["now"])
    assert (claims is not None) == case["valid"]
    if claims is not None:
        assert claims == read(case["token"])


def test_keys_are_fetched_once_for_unknown_ones() -> None:
    fetched = []

    def fetch() -> bytes:
        fetched.append(1)
        return KEYS

    passes = Passes(fetch, ())
    tokens = {case["name"]: case["token"] for case in VECTORS["tokens"]}
    assert passes.verify(tokens["right"], VECTORS["now"])
    assert not passes.verify(tokens["unknown kid"], VECTORS["now"])
    assert not passes.verify(tokens["unknown kid"], VECTORS["now"])
    assert passes.verify(tokens["right"], VECTORS["now"])
    assert len(fetched) == 1


def parse(raw: str) -> tuple[str, str, list[tuple[str, str]], str]:
    head, _, body = raw.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(": ") for line in lines)
    return method, target, [(name.lower(), value) for name, _, value in pairs], body


@pytest.mark.parametrize("case", VECTORS["requests"], ids=lambda case: case["name"])
def test_requests(case: dict[str, Any]) -> None:
    method, target, headers, body = parse(case["raw"])

    def ask() -> Question:
        q = question(method, "https" if case["tls"] else "http", target, case["peer"], headers)
        length = int(dict(headers).get("content-length", 0))
        return q.with_body(body.encode("latin-1").ljust(length)) if q.own else q

    if "status" in case:
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.status == case["status"]
        return
    q, want = ask(), case["question"]
    assert ("GET" if q.body is None else "POST", (q.body or b"").decode("latin-1")) == (want["method"], want["body"])
    assert sorted(q.wire(), key=lambda line: line[0]) == sorted(
        ((name.lower(), value) for name, value in want["headers"]), key=lambda line: line[0]
    )


@pytest.mark.parametrize(
    "case", VECTORS["local"], ids=lambda case: f"{case['folder']} {case['method']} {case['target']}"
)
def test_local(case: dict[str, Any]) -> None:
    headers = [("host", "shop.example"), *((name.lower(), value) for name, value in case["headers"])]
    q = question(case["method"], "http", case["target"], "203.0.113.7", headers)
    assert q.may_be_local(case["folder"]) == case["local"]


@pytest.mark.parametrize("case", VECTORS["cookies"], ids=lambda case: "; ".join(case["lines"]))
def test_cookies(case: dict[str, Any]) -> None:
    cookies = cookies_of(case["lines"])
    assert cookies == case["cookies"]
    if "after" in case:
        assert with_cookies(cookies, case["set_cookie"]) == case["after"]


def test_what_is_decided_is_what_is_served() -> None:
    assert target("/a%2Fb", "/a/b", "c=%41", "utf-8") == "/a%2Fb?c=%41"
    assert target("/%e9", "/\xe9", "", "latin-1") == "/%e9"
    assert target(None, "/a b/..;/\xc3\xa9%?#\\", "", "latin-1") == "/a%20b/..;/%C3%A9%25%3F%23%5C"
    for raw, path in (("/robots.txt", "/checkout"), ("//a", "/a"), ("/robots.txt#/../a", "/robots.txt"), ("*", "")):
        with pytest.raises(Refused):
            target(raw, path, "", "latin-1")


def test_a_pass_near_its_end_is_for_when_headgate_is_down() -> None:
    connector = Connector("http://127.0.0.1:1", (), 1.0, False, 10)
    q = question("GET", "http", "/", "", [("host", "shop.example"), ("cookie", "__cfwaitingroom=V")])
    now = time.monotonic()
    entry = _Entry(q.cookies(), session="s", folder="/", expires=time.time() + 3600, fresh=now + 3600, margin=10)
    connector._store(entry, q, [])
    assert connector.local(q)
    entry.fresh, entry.margin = now + 3600, 3600
    assert connector.local(q) is None and isinstance(connector.ask(q), Admitted)  # nobody listens at port 1
    entry.fresh = now
    assert connector.local(q) is None and isinstance(connector.ask(q), Answer)
    entry.fresh, entry.margin, entry.expires = now + 3600, 10, time.time()
    assert connector.local(q) is None and isinstance(connector.ask(q), Answer)


def test_an_ended_session_is_not_stored_again() -> None:
    """Neither what is kept lets in after end(), nor an answer that was under way then."""
    connector = Connector("http://127.0.0.1:1", (), 1.0, False, 10)
    q = question("GET", "http", "/", "", [("host", "shop.example"), ("cookie", "__cfwaitingroom=V")])
    token = VECTORS["tokens"][0]["token"]
    entry = _Entry(q.cookies(), session=read(token).session, folder="/", expires=time.time() + 3600, margin=1)
    entry.fresh = time.monotonic() + 3600
    connector._store(entry, q, [])
    assert connector.local(q)
    connector.end(token, "complete")
    assert connector.local(q) is None
    connector._store(entry, q, [])
    assert connector.local(q) is None
