from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from world import Headgate, Shop, Visitor, Wire


@pytest.fixture(scope="session")
def binary() -> str:
    return str(Path(os.environ["HEADGATE"]).absolute())


@dataclass
class World:
    headgate: Headgate
    wire: Wire
    shop: Shop
    another: Callable[..., World]
    """Starts one more process of the application, with a wire of its own. What it serves is in the same log."""

    def visitor(self, name: str = "") -> Visitor:
        return Visitor(self.shop, name)


Open = Callable[..., World]


@pytest.fixture
def world(binary: str, tmp_path: Path) -> Iterator[Open]:
    """Returns a function that starts headgate with a room, and a shop under a server."""
    with ExitStack() as stack:

        def start(server: str, room: str, **options: object) -> World:
            keys = f"new_users_per_minute: 6000, spread: false, checkout: {{pass: true}}, {room}"
            rooms = f"  - {{name: shop, host: shop.example, origin: 'http://127.0.0.1:1', {keys}}}\n"
            headgate = Headgate(binary, tmp_path, rooms)
            stack.callback(lambda: headgate.process.stop())

            def another(server: str, **options: object) -> World:
                wire = Wire(headgate)
                stack.callback(wire.close)
                shop = Shop(server, wire.url, tmp_path, **options)
                stack.callback(shop.stop)
                return World(headgate, wire, shop, another)

            return another(server, **options)

        yield start
