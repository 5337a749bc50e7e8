from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from world import Headgate, Shop, Visitor, Wire

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command headgate, built from this tree."""
    file = str(tmp_path_factory.mktemp("bin") / "headgate")
    if built := os.environ.get("HEADGATE"):
        return built
    subprocess.run([os.environ.get("GO", "go"), "build", "-o", file, "./cmd/headgate"], cwd=ROOT, check=True)
    return file


@dataclass
class World:
    headgate: Headgate
    wire: Wire
    shop: Shop

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
            wire = Wire(headgate)
            stack.callback(wire.close)
            shop = Shop(server, wire.url, tmp_path, **options)
            stack.callback(shop.stop)
            return World(headgate, wire, shop)

        yield start
