"""Signals ask a run to stop: Ctrl-C, SIGTERM and SIGHUP.

The first one lets a run finish the round at hand, or leave it where it takes long, and save what is done; where no run
is under way it leaves, tidying up. The second one leaves at once whatever is going on, and so does the first one while
the command is still being imported. A thread sees to that, since Python's own handlers wait until a compiled program,
or the compiler, has returned.

Python drops, and complains of, what is raised while it tidies up objects (JAX does so whenever memory is collected).
So a wish to leave that was dropped there is raised again a moment later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
GRACE = 1.0  # seconds in which Python may leave by itself, cleaning up, before it is made to
AGAIN = 0.01  # seconds after which a wish to leave that was dropped is raised again
SHOW_CURSOR = "\x1b[?25h"


class Leave(BaseException):
    """A signal raises this in the main thread while no run is under way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class StopRequest:
    """This is a wish to stop, which a loop looks for between rounds while it listens."""

    def __init__(self) -> None:
        self.signal: int | None = None  # the last one that came
        self.started = False  # an exception can be raised: in the middle of an import it could turn into another
        self.listening = False  # a loop looks for the wish
        self.answered = threading.Lock()  # held from the moment on in which somebody was told what comes of it
        self.holds: tuple[object, ...] = ()  # what must live as long as this
        self.effect = "stopping at the next safe point"  # what whoever sent a signal is told

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        self.listening = True
        try:
            yield
        finally:
            self.listening = False

    def answer(self) -> None:
        """Say once what comes of the wish, be it seen first by the handler or by the thread beside it."""
        if self.answered.acquire(blocking=False):
            _say(f"{self.effect}; the same again leaves at once")

    @contextlib.contextmanager
    def importing(self) -> Iterator[None]:
        """Raise no exception meanwhile: a signal then ends the process at once."""
        self.started = False
        try:
            yield
        finally:
            self.started = True


_installed: list[StopRequest] = []


def of_this_process() -> StopRequest | None:
    """Return the wish to stop that this process hears from signals, if it was started as a command."""
    return _installed[0] if _installed else None


def install() -> StopRequest:
    """Handle the signals from now on; one that the caller's shell ignores (nohup) stays ignored."""
    request = StopRequest()
    ours = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def handler(number: int, frame: FrameType | None) -> None:
        request.signal = number
        if request.listening:
            request.answer()
        elif request.started:
            raise Leave(number)

    complain = sys.unraisablehook

    def again(dropped: Any) -> None:
        if isinstance(dropped.exc_value, Leave) and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        elif not isinstance(dropped.exc_value, Leave):
            complain(dropped)

    for number in ours:
        signal.signal(number, handler)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, lambda number, frame: handler(request.signal or number, frame))
    sys.unraisablehook = again
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        seen = 0
        while numbers := reader.recv(16):
            for number in numbers:
                if number not in ours:
                    continue
                seen += 1
                if seen > 1 or not request.started:
                    leave_now(number, "left at once" if seen > 1 else "stopped")
                if request.listening:
                    request.answer()
                elif not request.answered.locked():
                    late = threading.Timer(GRACE, leave_now, (number, "stopped"))
                    late.daemon = True
                    late.start()

    thread = threading.Thread(target=watch, name="signals", daemon=True)
    thread.start()
    request.holds = (reader, writer, thread)
    _installed[:] = [request]
    return request


def leave_now(number: int, word: str) -> None:
    """End this process without another line of Python; files are whole at any moment."""
    _say(word)
    os._exit(128 + number)


def _say(sentence: str) -> None:
    cursor = SHOW_CURSOR if sys.stderr.isatty() else ""
    with contextlib.suppress(OSError, ValueError):
        os.write(2, f"{cursor}fedge: {sentence}\n".encode())
