"""What visitors get, under real servers."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import jwt
import pytest
from conftest import Open, World
from world import PATIENCE, Answer, Visitor, wait_for

SERVERS = ("uvicorn", "waitress", "gunicorn")
DJANGO = ("django_uvicorn", "django_waitress")
each_server = pytest.mark.parametrize("server", SERVERS)
each_framework = pytest.mark.parametrize("server", SERVERS + DJANGO)
one_of_each_kind = pytest.mark.parametrize("server", SERVERS[:2])
SMALL = "total_active_users: 1, session_duration: 1h"


@each_framework
def test_visitors_inside_cost_no_message(world: Open, server: str) -> None:
    w = world(server, SMALL)
    w.wire.batches_may_pass.clear()
    visitor, began = w.visitor("a"), time.monotonic()
    first = visitor.ask("/")
    assert first.inside
    assert first.all("set-cookie") and first.all("cache-control") == ["no-store"] and not first.all("expires")
    new_cookies = 0
    for i in range(50):
        answer = visitor.ask(f"/product/{i}")
        assert answer.inside
        if answer.all("set-cookie"):
            new_cookies += 1
        else:
            assert answer.all("cache-control") == ["public, max-age=60"] and answer.all("expires")
    leases = int((time.monotonic() - began) / 2)  # without batches a lease has two seconds
    assert 1 + new_cookies <= w.wire.count("/connect") <= 1 + leases
    served = w.shop.served()
    assert len(served) == 51 and len({s["session"] for s in served}) == 1 and served[0]["session"]
    assert w.visitor("b").ask("/").waits


@each_framework
def test_answers_for_waiting_visitors_are_relayed_whole(world: Open, server: str) -> None:
    w = world(server, SMALL)
    assert w.visitor().ask().inside
    visitor = w.visitor()
    page = visitor.ask(accept="text/html", accept_encoding="gzip")
    assert page.status == 503 and page.all("content-encoding") == ["gzip"] and b"<html" in gzip.decompress(page.body)
    assert page.all("set-cookie") and page.all("content-type") == ["text/html; charset=utf-8"]
    assert len(page.all("date")) == 1 and not page.all("headgate-admitted")
    poll = visitor.ask(headgate_poll="1")
    assert poll.status == 200 and json.loads(poll.body)
    assert visitor.ask("/.headgate/served").status == 200
    assert visitor.ask("/.headgate/jwks.json").status == 200
    head = visitor.ask("/", method="HEAD")
    assert head.status >= 400 and head.body == b""
    assert visitor.ask("/", headgate_poll="1").status == 200  # the connection goes on
    form = b"link=" + b"x" * 1000
    left = visitor.ask("/.headgate/leave", method="POST", body=form, content_type="application/x-www-form-urlencoded")
    assert left.status < 500 and w.wire.asked[-1].method == "POST" and w.wire.asked[-1].body == form
    assert visitor.ask("/.headgate/leave", method="POST", body=b"x" * 70_000).status == 413
    assert [s["visitor"] for s in w.shop.served()] == [""]  # of the visitor inside


@one_of_each_kind
def test_streams_of_the_application_stay_streams(world: Open, server: str) -> None:
    w = world(server, SMALL)
    c = http.client.HTTPConnection(w.shop.addr, timeout=PATIENCE)
    c.request("GET", "/stream", headers={"Host": "shop.example"})
    answer = c.getresponse()
    assert answer.readline() == b"first\n"
    w.shop.release()
    assert answer.read() == b"second\n"
    c.close()


@each_framework
def test_an_end_frees_the_slot(world: Open, server: str) -> None:
    w = world(server, SMALL)
    first, second = w.visitor("a"), w.visitor("b")
    assert first.ask().inside and second.ask().waits
    wait_for("a batch renews the cookie", lambda: first.ask().all("set-cookie"))
    assert first.ask().inside and w.wire.count("/connect") == 2
    assert json.loads(first.ask("/buy?wait", method="POST", body=b"").body) == {"ended": True}
    wait_for("the second visitor comes in", lambda: second.ask().inside)
    asked = w.wire.count("/connect")
    assert first.ask().waits and w.wire.count("/connect") == asked + 1
    served = [(s["event"], s["visitor"]) for s in w.shop.served()]
    assert served[-3:] == [("page", "a"), ("leave", "a"), ("page", "b")]


@each_framework
def test_a_busy_session_is_prolonged_by_batches(world: Open, server: str) -> None:
    w = world(server, "total_active_users: 1, session_duration: 6s")
    visitor = w.visitor()
    assert visitor.ask().inside
    w.wire.cut = True  # nothing but batches

    def passes() -> list[dict[str, Any]]:
        last = dict(w.shop.served()[-1]["headers"])["headgate-pass"]
        return [jwt.decode(last, options={"verify_signature": False})]

    (start,) = passes()
    seconds = 0.0
    while seconds < 12:
        answer = visitor.ask("/product")
        assert answer.inside, answer.body
        (now,) = passes()
        assert now["sub"] == start["sub"]
        seconds = now["exp"] - start["exp"]
    assert w.wire.count("/batch") > 2
    w.wire.cut = False
    assert w.visitor().ask().waits


@one_of_each_kind
def test_headgate_killed(world: Open, server: str) -> None:
    w = world(server, SMALL)
    inside, newcomer = w.visitor("a"), w.visitor("b")
    assert inside.ask().inside
    w.headgate.process.stop()
    for _ in range(10):
        assert inside.ask("/product").inside
    answer = newcomer.ask()
    assert answer.down and answer.all("retry-after") == ["5"] and answer.all("cache-control") == ["no-store"]
    assert inside.ask("/a%20b").down  # a path that headgate must read
    assert newcomer.ask("/robots.txt").down
    w.headgate.start()
    assert newcomer.ask().waits and inside.ask("/a%20b").inside
    assert {s["visitor"] for s in w.shop.served()} == {"a"}


@one_of_each_kind
def test_a_pass_ends_while_headgate_is_down(world: Open, server: str) -> None:
    w = world(server, "total_active_users: 1, session_duration: 4s")
    inside = w.visitor()
    assert inside.ask().inside
    w.headgate.process.stop()
    answer = wait_for("the pass expires", lambda: None if (a := inside.ask()).inside else a)
    assert answer.down


@one_of_each_kind
def test_headgate_hangs(world: Open, server: str) -> None:
    w = world(server, SMALL, timeout=0.5)
    inside, newcomer = w.visitor(), w.visitor()
    assert inside.ask().inside
    w.headgate.freeze()
    assert newcomer.ask().down and inside.ask().inside and newcomer.ask().down
    w.headgate.thaw()
    wait_for("headgate answers", lambda: newcomer.ask().waits)


@one_of_each_kind
def test_fail_open(world: Open, server: str) -> None:
    w = world(server, SMALL, fail_open=True)
    assert w.visitor().ask().inside and w.visitor().ask().waits
    w.headgate.process.stop()
    assert w.visitor().ask(headgate_pass="forged").inside
    assert "headgate-pass" not in dict(w.shop.served()[-1]["headers"])


@one_of_each_kind
def test_the_room_is_not_there(world: Open, server: str) -> None:
    """An answer that is not about the visitor lets nobody in, also with fail_open."""
    w = world(server, SMALL, fail_open=True)
    assert w.visitor().ask(host="other.example").status == 404
    assert not w.shop.served()


@one_of_each_kind
def test_preflights_pass_without_the_visitor(world: Open, server: str) -> None:
    w = world(server, "total_active_users: 1, session_duration: 1h")
    preflight: Any = {"origin": "https://a.example", "access_control_request_method": "POST"}
    answer = w.visitor().ask("/a", "OPTIONS", authorization="Basic eDp5", cookie="a=1", **preflight)
    assert answer.status == 200 and answer.body == b""
    (served,) = w.shop.served()
    assert not {"cookie", "authorization", "headgate-pass"} & dict(served["headers"]).keys()
    assert w.visitor().ask("/a", "OPTIONS", body=b"body", **preflight).status == 503
    assert len(w.shop.served()) == 1


def _crowd(w: World, visitors: list[Visitor]) -> None:
    """Each visitor polls until it is in, looks at some pages, and buys."""

    def visit(visitor: Visitor) -> None:
        wait_for(f"{visitor.name} comes in", lambda: visitor.ask().inside)
        for i in range(5):
            assert visitor.ask(f"/product/{i}").inside
        assert visitor.ask("/buy", method="POST", body=b"").status == 200
        visitor.close()

    with ThreadPoolExecutor(len(visitors)) as threads:
        list(threads.map(visit, visitors))


@each_framework
def test_a_crowd_is_never_too_many(world: Open, server: str) -> None:
    """The application judges: a visitor is inside from its first page until the application says its end."""
    w = world(server, "total_active_users: 20, session_duration: 1h, poll_min: 1s")
    _crowd(w, [w.visitor(str(i)) for i in range(60)])
    inside: set[str] = set()
    came: set[str] = set()
    most = 0
    for served in w.shop.served():
        if served["event"] == "leave":
            inside.remove(served["visitor"])
        else:
            inside.add(served["visitor"])
            came.add(served["visitor"])
        most = max(most, len(inside))
    assert len(came) == 60 and not inside
    assert most == 20


def _poll(v: Visitor) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(v.ask(headgate_poll="1").body)["headgate"]
    return told


@one_of_each_kind
def test_visitors_come_in_order(world: Open, server: str) -> None:
    # However slow the machine is, nobody goes quiet or misses a call: all are told to poll in minutes, and a
    # called visitor may take an hour.
    slow = "poll_min: 5m, poll_max: 5m, hold: 1h, call_hold: 1h"
    w = world(server, f"total_active_users: 20, session_duration: 1h, {slow}")
    visitors = [w.visitor(str(i)) for i in range(60)]
    assert all(v.ask().inside and v.ask().inside for v in visitors[:20])  # the second time with the cookie
    for v in visitors[20:]:  # newcomers are told to poll in seconds
        assert v.ask().waits
        wait_for("a place in the line", lambda v=v: _poll(v)["poll_after_seconds"] > 60)  # type: ignore[misc]

    def called(v: Visitor) -> bool:
        return bool(_poll(v)["state"] == "called")

    for i in range(0, 40, 4):
        for v in visitors[i : i + 4]:
            assert v.ask("/buy", method="POST", body=b"").status == 200
        nexts, rest = visitors[20 + i : 24 + i], visitors[24 + i :]
        wait_for("four are called", lambda nexts=nexts: all(called(v) for v in nexts))  # type: ignore[misc]
        assert not any(called(v) for v in rest)
        assert all(v.ask().inside and v.ask().inside for v in nexts)
    came = dict.fromkeys(s["visitor"] for s in w.shop.served())
    assert list(came) == [str(i) for i in range(60)]


@one_of_each_kind
@pytest.mark.parametrize("batches", ["none", "some", "no more"])
def test_a_session_that_ends_elsewhere_is_over(world: Open, server: str, batches: str) -> None:
    """Two processes of the application. A session ends at one, while the other may let its visitor in. That is
    over when the next visitor is in, also where headgate's word of the end does not arrive."""
    w = world(server, SMALL, timeout=10)
    other = w.another(server)
    old, new, again = w.visitor("old"), other.visitor("new"), other.visitor("old")

    def rest() -> float:
        pass_ = dict(w.shop.served()[-1]["headers"])["headgate-pass"]
        return float(jwt.decode(pass_, options={"verify_signature": False})["exp"] - time.time())

    wait_for("a pass for more than a probation", lambda: again.ask().inside and rest() > 60)
    cookies = again.cookies.copy()

    def old_is_inside() -> bool:
        old.cookies = cookies.copy()  # with the pass: no place in the line
        return old.ask().inside

    assert new.ask().waits
    if batches != "none":
        wait_for("a batch with a lease", lambda: old_is_inside() and w.wire.leases > 0)
    if batches != "some":
        w.wire.batches_may_pass.clear()
    assert old_is_inside()
    if batches == "some":  # the visitor is silent from now on: a question about it would be answered too
        asked = w.wire.leases
        wait_for("batches without the visitor", lambda: w.wire.leases > asked + 1)
    assert json.loads(again.ask("/buy?wait", method="POST", body=b"").body) == {"ended": True}
    wait_for("the next one comes in", lambda: (batches == "none" and old_is_inside(), new.ask().inside)[1])
    if batches == "no more":  # a question gets an answer while a batch gets none: headgate is not down
        sent = w.wire.count("/batch")
        assert w.visitor("waits").ask().waits
        wait_for("the next batch", lambda: w.wire.count("/batch") > sent)
    for _ in range(5):
        assert not old_is_inside() and new.ask().inside
    w.wire.batches_may_pass.set()
    served = [s["visitor"] for s in w.shop.served()]
    assert "old" not in served[served.index("new") :]


def test_a_crowd_at_two_processes_is_never_too_many(world: Open) -> None:
    """Each visitor has a tab at each process, buys in one, and goes on in the other for as long as it may. A
    session is surely inside from its first answer until its last request is sent."""
    w = world("uvicorn", "total_active_users: 5, session_duration: 1h, poll_min: 1s")
    other = w.another("waitress")
    before = w.visitor("before")
    wait_for("a batch with a lease", lambda: before.ask().inside and w.wire.leases > 0)
    assert before.ask("/buy", method="POST", body=b"").status == 200
    inside: dict[str, tuple[float, float]] = {}

    def ask(tab: Visitor) -> Answer:
        sent = time.monotonic()
        answer = tab.ask()
        if answer.inside:
            first, last = inside.get(answer.session, (time.monotonic(), sent))
            inside[answer.session] = first, max(last, sent)
        return answer

    def visit(n: int) -> None:
        tab, second = w.visitor(str(n)), other.visitor(str(n))
        second.cookies = tab.cookies
        session = wait_for(f"{n} comes in", lambda: ask(tab).session)
        for _ in range(5):
            assert ask(tab).session == session and ask(second).session == session
        assert second.ask("/buy", method="POST", body=b"").status == 200
        while (answer := ask(tab)).session == session:
            time.sleep(0.01)
        if answer.inside:  # by a new session: nobody waited
            assert tab.ask("/buy", method="POST", body=b"").status == 200

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(visit, range(20)))
    assert len(inside) >= 20
    moments = sorted(
        [(first, 1) for first, last in inside.values() if first < last]
        + [(last, -1) for first, last in inside.values() if first < last]
    )
    most = max(accumulate(change for _, change in moments))
    assert most <= 5


def _handshake(path: str, *headers: str) -> bytes:
    lines = ["Host: shop.example", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *headers]
    return f"GET {path} HTTP/1.1\r\n{''.join(line + chr(13) + chr(10) for line in lines)}\r\n".encode()


def test_websockets_are_for_visitors_inside(world: Open) -> None:
    w = world("uvicorn", SMALL)
    inside = w.visitor()
    assert inside.ask().inside
    cookie = "Cookie: " + "; ".join(f"{n}={v}" for n, v in inside.cookies.items())
    assert w.shop.raw(_handshake("/chat")).startswith(b"HTTP/1.1 503 ")
    assert w.shop.raw(_handshake("/robots.txt")).startswith(b"HTTP/1.1 403 ")
    assert [s["event"] for s in w.shop.served()] == ["page"]
    host, port = w.shop.addr.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as s:
        s.sendall(_handshake("/chat", cookie))
        digest = hashlib.sha1(b"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        assert base64.b64encode(digest) in s.recv(65536)
        s.sendall(b"\x81\x82\0\0\0\0hi")
        assert s.recv(65536).startswith(b"\x81\x02hi")
    assert [s["event"] for s in w.shop.served()] == ["page", "socket"]
    w.headgate.process.stop()
    assert w.shop.raw(_handshake("/chat")).startswith(b"HTTP/1.1 503 ")
