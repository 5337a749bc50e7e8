"""What both middlewares share: questions, local answers and batches."""

from __future__ import annotations

import atexit
import errno
import http.client
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from ._client import Answer, Client
from ._passes import Passes, read
from ._question import Header, Question, key, with_cookies

_log = logging.getLogger("headgate")

_EVERY = 1.0  # seconds between batches
_MOST_NOTES, _MOST_ENDS = 1_000, 100  # of a batch; ten times as many ends may wait
_MOST_BYTES = 900_000  # of the questions of a batch; headgate takes 1 MB with everything
_LATE = 60.0  # seconds after which no answer is under way any more
_LEASE = 2.0  # seconds for which an answer of headgate holds, unless a batch says more
_MOST_MARGIN = 3.0  # seconds before the end of a pass, in which asking prolongs the session

_FAILURES = (OSError, http.client.HTTPException)

# Errors of this machine: they say nothing of headgate, and a flood of visitors can cause them.
_OWN = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})


def short(status: int, text: str, *headers: Header) -> Answer:
    """Returns an answer of the connector itself."""
    kind = [("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store")]
    return Answer(status, [*kind, *headers], text.encode() + b"\n")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


class _Moment:
    """A moment by both clocks: one stands still while the machine sleeps, the other may be set."""

    def __init__(self) -> None:
        self.monotonic, self.wall = time.monotonic(), time.time()

    def is_leased(self) -> bool:
        return max(time.monotonic() - self.monotonic, time.time() - self.wall) < _LEASE


class Visit:
    """A visitor's session, for the application: scope["headgate"] or environ["headgate"]."""

    def __init__(self, connector: Connector, pass_: str) -> None:
        self._connector = connector
        self.pass_ = pass_
        """The signed pass, as in the header Headgate-Pass; "" if the room signs none."""

    def end(self, outcome: Literal["complete", "abandon"] = "complete") -> Future[bool]:
        """Ends the session, so that its slot is free. headgate learns of it within two seconds. The result
        is then whether this has ended the session; you need not wait for it."""
        return self._connector.end(self.pass_, outcome)


@dataclass(eq=False)
class _Entry:
    """A session that this process knows."""

    cookies: list[str]
    """headgate's cookies of the visitor, the newest that is known."""
    room: str = ""
    session: str = ""
    folder: str = ""
    pass_: str = ""
    expires: float = 0
    fresh: float = 0
    """By the monotonic clock, it lets in until then while headgate is down, and else until margin before."""
    margin: float = 0
    asked: _Moment = field(default_factory=_Moment)
    set_cookies: list[str] = field(default_factory=list)
    """Lines that no answer has carried yet."""


@dataclass
class Admitted:
    """A request that may pass."""

    kind: str
    """session, uncounted or bare, as headgate says; open if headgate is down."""
    visit: Visit | None = None
    set_cookies: list[str] = field(default_factory=list)
    entry: _Entry | None = None

    def take_cookies(self) -> list[str]:
        """Returns the lines of Set-Cookie for the visitor's answer, which is about to be sent."""
        if self.entry is not None:
            self.set_cookies, self.entry.set_cookies = self.set_cookies + self.entry.set_cookies, []
        return self.set_cookies


@dataclass(eq=False)
class _Note:
    """The newest request of a session that headgate does not know."""

    entry: _Entry
    q: Question

    def question(self) -> bytes:
        q, agent = self.q, [["User-Agent", value] for value in self.q.lines("user-agent")]
        return _json({
            "method": q.method, "host": q.host, "proto": q.proto, "uri": q.target, "for": q.forwarded_for,
            "headers": [["Cookie", "; ".join(self.entry.cookies)], *agent],
        })  # fmt: skip


@dataclass(eq=False)
class _End:
    session: str
    room: str
    token: str
    outcome: str
    ended: Future[bool] = field(default_factory=Future)


class Connector:
    """Asks headgate about requests. May be used by many threads at once."""

    def __init__(self, decide: str, rooms: Collection[str], timeout: float, fail_open: bool, memory: int) -> None:
        self._client = Client(decide, timeout)
        self._passes = Passes(self._key_set, frozenset(rooms))
        self._fail_open, self._most = fail_open, memory
        self._lock = threading.Lock()
        self._told = threading.Condition(self._lock)
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._notes: dict[str, _Note] = {}  # by session
        self._ends: dict[str, _End] = {}  # by session
        self._ended: dict[str, float] = {}  # by session: until no answer from before its end can come
        self._closed = False
        self._batches: threading.Thread | None = None
        self._hangs, self._probe = False, threading.Lock()
        self._fails = False  # what was sent last got no answer, and nothing else has got one meanwhile
        self._answered = 0.0  # when headgate answered last
        self._lease: _Moment | None = None  # when the last batch was sent that was answered with a lease
        self._leased_since = float("inf")  # what was asked from then on, the lease is for
        self._kept_until = 0.0  # the last end of all that was kept
        atexit.register(self.close)

    def local(self, q: Question, at_end: bool = False) -> Admitted | None:
        """Lets in a visitor with a pass, without a message. None: ask. at_end is for a pass that is about to
        expire."""
        name = key(q.proto, q.host, q.cookies())
        if name is None:
            return None
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or not q.may_be_local(entry.folder):
                return None
            margin = 0 if at_end or self._fails else entry.margin
            if time.monotonic() >= entry.fresh - margin or time.time() >= entry.expires:
                return None
            if not self._fails and not self._is_leased(entry.asked):
                return None
            if entry.session not in self._notes and len(self._notes) >= _MOST_NOTES:
                return None
            self._entries.move_to_end(name)
            self._notes[entry.session] = _Note(entry, q)
            self._tell()
            return Admitted("session", Visit(self, entry.pass_), [], entry)

    def ask(self, q: Question) -> Admitted | Answer:
        """Asks headgate. Returns that the request may pass, or the answer for the visitor."""
        probes = self._hangs
        if probes and not self._probe.acquire(blocking=False):
            return self._unanswered(q)  # one request at a time finds out whether headgate is back
        sent = _Moment()
        try:
            answer = self._client.send("GET" if q.body is None else "POST", "/connect", q.wire(), q.body)
            self._note_answer()
        except ValueError:  # a header that HTTP does not allow
            return short(400, "A header of this request is not valid.")
        except _FAILURES as error:
            if self._note_failure(sent, error):
                self._hangs = isinstance(error, TimeoutError)
            _log.error("headgate does not answer: %s", error)
            return self._unanswered(q, own=getattr(error, "errno", None) in _OWN)
        finally:
            if probes:
                self._probe.release()
        kind = answer.get("headgate-admitted")
        if kind not in ("session", "uncounted", "bare"):
            self._drop(q)
            if q.method == "HEAD":  # no body comes
                answer.close()
                return Answer(answer.status, answer.headers)
            return answer
        answer.finish()
        if q.upgrade and kind != "session":
            return short(403, "Only visitors inside may open a WebSocket.")
        if q.has_body and kind == "bare":
            return short(503, "A preflight has no body.")
        set_cookies = answer.all("set-cookie")
        if kind != "session":
            return Admitted(kind, None, set_cookies)
        pass_, entry = answer.get("headgate-pass") or "", _Entry(q.cookies())
        old = list(entry.cookies)
        if self._learn(entry, answer.get("headgate-local"), pass_, set_cookies, sent, answer.get("date")):
            self._store(entry, q, old)
        return Admitted(kind, Visit(self, pass_), set_cookies)

    def _unanswered(self, q: Question, own: bool = False) -> Admitted | Answer:
        if known := self.local(q, at_end=True):
            return known
        if self._fail_open and self._fails and not own:
            return Admitted("open")
        return short(503, "The waiting room does not answer. Try again in a few seconds.", ("retry-after", "5"))

    def _note_answer(self) -> None:
        self._answered, self._hangs, self._fails = time.monotonic(), False, False

    def _note_failure(self, sent: _Moment, error: Exception) -> bool:
        """Reports whether headgate is down. It is not if it has answered others meanwhile: then one connection
        is broken, or a flood makes answers late. An error of this machine says nothing of headgate."""
        if getattr(error, "errno", None) in _OWN:
            return False
        self._fails = self._answered < sent.monotonic
        return self._fails

    def _drop(self, q: Question) -> None:
        """Forgets the session of a request that headgate has not let in."""
        with self._lock:
            name = key(q.proto, q.host, q.cookies())
            entry = self._entries.get(name) if name else None
            if entry is not None and q.may_be_local(entry.folder):
                self._forget({entry.session})

    def _learn(
        self, entry: _Entry, folder: str | None, pass_: str, lines: list[str], sent: _Moment, date: str | None
    ) -> bool:
        """Changes an entry to what an answer states, and reports whether it may let requests in."""
        if not folder or not folder.startswith("/") or not pass_ or not date:
            return False
        claims = self._passes.verify(pass_, time.time())
        if claims is None:
            return False
        try:
            rest = claims.expires - parsedate_to_datetime(date).timestamp()
        except ValueError:
            return False
        with self._lock:
            entry.room, entry.session, entry.folder, entry.pass_ = claims.room, claims.session, folder, pass_
            entry.expires, entry.margin = claims.expires, min(_MOST_MARGIN, rest / 4)
            entry.asked, entry.fresh = sent, sent.monotonic + rest - 1  # Date has whole seconds
            entry.cookies = with_cookies(entry.cookies, lines)
        return True

    def _store(self, entry: _Entry, q: Question, old: list[str]) -> None:
        """Stores an entry under the cookies that its visitor has, and those that it is about to have."""
        with self._lock:
            if entry.session in self._ends or entry.session in self._ended:
                return
            for cookies in (old, entry.cookies):
                if name := key(q.proto, q.host, cookies):
                    self._entries[name] = entry
                    self._entries.move_to_end(name)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
            self._kept_until = max(self._kept_until, entry.fresh)
            self._tell()

    def _is_leased(self, asked: _Moment) -> bool:
        """Reports whether headgate gives no other visitor the slot of a session, whatever happens."""
        by_batch = self._lease is not None and asked.monotonic >= self._leased_since and self._lease.is_leased()
        return by_batch or asked.is_leased()

    def _renew_lease(self, sent: _Moment, told: dict[str, Any]) -> None:
        """Takes a lease. It is for what is kept, but for the sessions that have ended."""
        with self._lock:
            gone = set(told.get("gone") or ())
            for session in gone:
                self._ended.setdefault(session, time.monotonic() + _LATE)
            if gone:
                self._forget(gone)
            if not told.get("lease"):
                self._lease = None
            elif sent.is_leased():
                if self._lease is None or sent.monotonic - self._lease.monotonic > _LEASE:
                    self._leased_since = sent.monotonic - _LEASE
                self._lease = sent

    def _works(self) -> bool:
        return bool(self._notes or self._ends or time.monotonic() < self._kept_until)

    def end(self, pass_: str, outcome: str) -> Future[bool]:
        if not pass_:
            raise ValueError("the session has no pass: the room needs checkout: {pass: true}")
        claims = read(pass_)
        with self._lock:
            end = self._ends.get(claims.session)
            if end is None:
                if len(self._ends) >= 10 * _MOST_ENDS:
                    raise RuntimeError("too many sessions wait for their end: headgate does not answer")
                end = self._ends[claims.session] = _End(claims.session, claims.room, pass_, outcome)
                end.ended.set_running_or_notify_cancel()  # nobody can cancel it
            self._forget({claims.session})
            self._tell()
            return end.ended

    def _forget(self, sessions: Collection[str]) -> None:
        for session in sessions:
            self._notes.pop(session, None)
        for name in [name for name, entry in self._entries.items() if entry.session in sessions]:
            del self._entries[name]

    def _tell(self) -> None:
        """Starts what sends the batches: not before the first request, because servers fork."""
        if self._batches is None or not self._batches.is_alive():
            self._batches = threading.Thread(target=self._send_batches, name="headgate", daemon=True)
            self._batches.start()
        self._told.notify()

    def _send_batches(self) -> None:
        while True:
            with self._told:
                self._told.wait_for(lambda: self._closed or self._works())
                self._told.wait_for(lambda: self._closed, _EVERY)
                if self._closed:
                    return
            self._send_batch()

    def close(self) -> None:
        """Sends what is left, once."""
        with self._told:
            self._closed = True
            self._told.notify_all()
        if self._batches is not None:
            self._batches.join()
            self._batches = None
            self._send_batch()

    def _send_batch(self) -> None:
        with self._lock:
            waiting, ends = list(self._notes.values()), list(self._ends.values())[:_MOST_ENDS]
        notes, questions, left = [], [], _MOST_BYTES
        for note in waiting:
            question = note.question()
            if (left := left - len(question)) < 0:
                break
            notes.append(note)
            questions.append(question)
        if not notes and not ends and time.monotonic() >= self._kept_until:
            return
        tail = _json([{"room": end.room, "token": end.token, "as": end.outcome} for end in ends])
        body = b'{"questions": [%s], "ends": %s}' % (b",".join(questions), tail)
        sent = _Moment()
        try:
            answer = self._client.send("POST", "/batch", [("Content-Type", "application/json")], body)
            text = answer.finish()
            if answer.status != 200:
                raise OSError(f"status {answer.status}: {text[:200]!r}")
            told = json.loads(text)
            answers = list(zip(notes, told["answers"], strict=True))
            endings = list(zip(ends, told["ends"], strict=True))
            self._note_answer()
        except (*_FAILURES, ValueError, LookupError, TypeError) as error:
            if not self._fails:
                _log.error("headgate takes no batch: %s", error)
            self._note_failure(sent, error)
            return  # the next one has it all
        self._renew_lease(sent, told)
        over = {note.entry.session for note, x in answers if not self._renew(note, x, sent, answer.get("date"))}
        with self._lock:
            for note in notes:
                if self._notes.get(note.entry.session) is note:
                    del self._notes[note.entry.session]
            self._forget(over)
            now, done = time.monotonic(), [(end, x) for end, x in endings if x.get("error") != "not_ended"]
            self._ended = {session: until for session, until in self._ended.items() if until > now}
            for end, _ in done:
                del self._ends[end.session]
                self._ended[end.session] = now + _LATE
        for end, x in done:
            end.ended.set_result(x.get("ended") is True)

    def _renew(self, note: _Note, x: dict[str, Any], sent: _Moment, date: str | None) -> bool:
        """Takes the answer about a note. False: the session is over, or headgate must be asked again."""
        entry, lines = note.entry, x.get("set_cookie") or []
        old = entry.cookies
        if x.get("status") != 204 or x.get("admitted") != "session":
            return False
        if not self._learn(entry, x.get("local"), x.get("pass") or "", lines, sent, date):
            return False
        entry.set_cookies = lines or entry.set_cookies
        self._store(entry, note.q, old)
        return True

    def _key_set(self) -> bytes:
        answer = self._client.send("GET", "/jwks.json", [])
        text = answer.finish()
        if answer.status != 200:
            raise OSError(f"status {answer.status}: {text[:200]!r}")
        return text


class Middleware:
    """What an application is put behind.

    decide is the address decide.listen of headgate, as http://HOST:PORT. With rooms, passes of other rooms let
    nobody in without a question. With fail_open, everybody gets in while headgate does not answer for timeout
    seconds. memory is how many sessions are kept."""

    def __init__(
        self,
        app: Any,
        decide: str,
        *,
        rooms: Collection[str] = (),
        timeout: float = 5.0,
        fail_open: bool = False,
        memory: int = 10_000,
    ) -> None:
        self.app = app
        self._connector = Connector(decide, rooms, timeout, fail_open, memory)
