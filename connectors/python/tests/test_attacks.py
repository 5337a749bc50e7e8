"""Visitors who want to get in without a slot, under real servers. The application judges."""

from __future__ import annotations

import json
import resource

import pytest
from conftest import Open

from headgate._client import Answer
from headgate._connector import Admitted, Connector
from headgate._question import Question

SERVERS = ("uvicorn", "waitress", "gunicorn", "merging")
each_server = pytest.mark.parametrize("server", SERVERS)
SMALL = "total_active_users: 1, session_duration: 1h"

TARGETS = (
    "/checkout/..%2frobots.txt", "/checkout/%2e%2e/robots.txt", "/checkout/../robots.txt",
    "/checkout/..;x/robots.txt", "/checkout/..\\robots.txt", "/checkout/..%5crobots.txt",
    "/robots.txt/..%2fcheckout", "/robots.txt/../checkout", "/robots.txt/%2e%2e/checkout",
    "/robots.txt;/../checkout", "/robots.txt%00/../checkout", "//robots.txt", "//x/robots.txt",
    "/robots.txt%2f..%2fcheckout", "/robots.txt?/../checkout", "/robots.txt#/../checkout",
    "http://shop.example/checkout", "http://other.example/robots.txt", "http:http://shop.example/checkout",
    "/.headgate/../checkout", "/.headgate/..%2fcheckout", "/checkout/.headgate/served",
    "/connect", "/batch", "/forward", "/ROBOTS.TXT/..%2fcheckout", "/./robots.txt/../checkout",
    "//shop.example/checkout", "/robots.txt%3f/../checkout", "/%72obots.txt/../checkout", "*", "checkout",
    "/.well-known/..%2fcheckout", "/.well-known/%2e%2e/checkout", "/.well-known/../checkout", "/%c0%ae%c0%ae/checkout",
)  # fmt: skip


def request(target: str, method: str = "GET", *headers: str) -> bytes:
    lines = ["Host: shop.example", "Connection: close", "Content-Length: 0", *headers]
    return f"{method} {target} HTTP/1.1\r\n{''.join(line + chr(13) + chr(10) for line in lines)}\r\n".encode("latin-1")


@each_server
def test_paths_are_no_way_around(world: Open, server: str) -> None:
    """The room is closed, so that only excluded paths pass: /robots.txt and what is in /.well-known/."""
    w = world(server, SMALL + ", closed: true")
    assert w.shop.raw(request("/robots.txt")).split()[1] == b"200"
    assert [s["path"] for s in w.shop.served()] == ["/robots.txt"]
    for target in TARGETS:
        for method in ("GET", "POST"):
            w.shop.raw(request(target, method))
    assert {s["path"] for s in w.shop.served()} == {"/robots.txt"}


@pytest.mark.parametrize("server", ("waitress", "gunicorn"))
def test_another_script_name(world: Open, server: str) -> None:
    """gunicorn takes SCRIPT_NAME off the path."""
    w = world(server, SMALL + ", closed: true")
    for name in ("SCRIPT_NAME", "Script-Name", "PATH_INFO", "Path-Info"):
        w.shop.raw(request("/.well-known/checkout", "GET", name + ": /.well-known"))
        w.shop.raw(request("/.well-known/x", "GET", name + ": /checkout"))
    assert {s["path"] for s in w.shop.served()} <= {"/.well-known/checkout", "/.well-known/x"}


FORGED = (
    "X-Forwarded-Uri", "X-Forwarded-Method", "X-Original-URI", "X-Original-URL", "X-Original-Method",
    "X-Rewrite-URL", "X-HTTP-Method-Override", "Headgate-Admitted", "Headgate-Pass", "Headgate_Pass", "Headgate-Local",
)  # fmt: skip


@each_server
def test_forged_headers(world: Open, server: str) -> None:
    w = world(server, SMALL)
    inside = w.visitor("a")
    assert inside.ask().inside
    right = dict(w.shop.served()[0]["headers"])["headgate-pass"]
    cookie = "Cookie: " + "; ".join(f"{n}={v}" for n, v in inside.cookies.items())
    for name in FORGED:
        for value in ("/robots.txt", "https://shop.example/robots.txt", "OPTIONS", "session", "forged"):
            w.shop.raw(request("/checkout", "GET", f"{name}: {value}"))
            assert w.shop.served()[-1]["path"] == "/", (name, value)
    count = len(w.shop.served())
    for path in ("/local", "/a%20b"):  # by the pass, and by a question
        for name in ("Headgate-Pass", "Headgate_Pass", "headgate.pass"):
            w.shop.raw(request(path, "GET", cookie, name + ": forged"))
    assert len(w.shop.served()) == count + 6
    for served in w.shop.served():
        spelled = {n.replace("_", "-").replace(".", "-"): v for n, v in served["headers"]}
        passes = [v for n, v in served["headers"] if n.replace("_", "-").replace(".", "-") == "headgate-pass"]
        assert len(passes) == 1 and spelled["headgate-pass"].count(".") == 2 and passes[0].split(".")[0] in right
    w.shop.raw(request("/robots.txt", "GET", "Headgate-Pass: forged", "Headgate_Pass: forged"))
    assert not [n for n, _ in w.shop.served()[-1]["headers"] if "pass" in n]


@each_server
def test_whom_headgate_takes_a_visitor_for(world: Open, server: str) -> None:
    w = world(server, SMALL)
    w.shop.raw(
        request("/", "GET", "X-Forwarded-For: 192.0.2.1", "X_Forwarded_For: 192.0.2.9", "X-Forwarded-Proto: https")
    )
    asked = w.wire.asked[0]
    assert "192.0.2.9" not in json.dumps(w.shop.served()[0]["headers"]) or server == "merging"
    # waitress removes these headers, and so does the connector where the server merges them.
    kept = "192.0.2.1, 127.0.0.1" if server in ("uvicorn", "gunicorn") else "127.0.0.1"
    assert asked.all("x-forwarded-for") == [kept]
    # gunicorn believes a proxy on this machine.
    assert asked.all("x-forwarded-proto") == ["https" if server == "gunicorn" else "http"]
    assert asked.all("x-forwarded-host") == ["shop.example"]


@each_server
def test_a_cookie_of_another_host_or_scheme(world: Open, server: str) -> None:
    """What was kept for one host lets in at no other one, also if the cookie is the same."""
    w = world(server, SMALL)
    inside = w.visitor("a")
    assert inside.ask().inside and inside.ask("/b").inside
    asked = w.wire.count("/connect")
    assert inside.ask("/c", host="other.example").status == 404
    assert w.wire.count("/connect") == asked + 1
    inside.cookies = {n: v[:-2] + ("AA" if v[-2:] != "AA" else "BB") for n, v in inside.cookies.items()}
    assert inside.ask("/d").waits
    assert [s["path"] for s in w.shop.served()] == ["/", "/b"]


def test_two_hosts(world: Open) -> None:
    w = world("uvicorn", SMALL)
    assert b" 400 " in w.shop.raw(request("/robots.txt", "GET", "Host: other.example"))[:20]
    assert not w.shop.served() and not w.wire.asked


def test_the_last_file_opens_nothing() -> None:
    """A flood takes the last file descriptor of the application: that says nothing of headgate."""
    connector = Connector("http://127.0.0.1:9", (), 1.0, True, 10)
    q = Question("GET", "http", "shop.example", "/", "203.0.113.7", ())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        refused = connector.ask(q)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(refused, Answer) and refused.status == 503
    down = connector.ask(q)  # nobody listens
    assert isinstance(down, Admitted) and down.kind == "open"
