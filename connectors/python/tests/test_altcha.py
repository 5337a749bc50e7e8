"""ALTCHA's own client from PyPI, as an app of a room with proof of work uses it."""

from __future__ import annotations

import time
from typing import Any

from altcha import Challenge, Payload, Solution, solve_challenge
from conftest import Open
from world import PATIENCE, Visitor, wait_for

ROOM = "total_active_users: 1, session_duration: 1h, challenge: {kind: work}"


def poll(visitor: Visitor, solution: str = "") -> dict[str, Any]:
    return visitor.ask(headgate_poll="1", headgate_solution=solution).headgate


def solve(answer: dict[str, Any], wrong: int = 0) -> str:
    challenge = Challenge.from_dict(answer["challenge"])
    solution = solve_challenge(challenge, timeout=PATIENCE)
    assert solution
    return Payload(challenge, Solution(solution.counter + wrong, solution.derived_key)).to_base64()


def test_altcha_solves_a_challenge(world: Open) -> None:
    w = world("uvicorn", ROOM)
    assert w.visitor().ask().inside
    first = w.visitor()
    assert first.ask().headgate["challenge"]
    wait_for("who waits alone needs no solution", lambda: not poll(first)["challenge"])

    def newcomer(wrong: int = 0) -> dict[str, Any]:
        """The answer to a newcomer's solution, which counts for 10 s; how long it takes depends on luck."""
        visitor = w.visitor()
        answer = visitor.ask().headgate
        assert poll(visitor)["challenge"], "a place for nothing"
        return poll(visitor, solve(answer, wrong))

    end = time.monotonic() + PATIENCE
    while (right := newcomer())["challenge"]:
        assert time.monotonic() < end, "no solution comes in time"
    assert right["position"] == 2
    assert newcomer(wrong=1)["challenge"], "a wrong solution counts"
