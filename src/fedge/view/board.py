"""The board is a local web server: the runs of a folder, and their pages, which follow runs that are still going on.

It reads only, and opens nothing but the runs that its own listing found. What changes goes to the browser as
server-sent events; the files behind them are looked at once a second at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedge.errors import ConfigError, FedgeError, RunError, brief
from fedge.runner.signals import StopRequest
from fedge.view.board_runs import SECOND, Listing
from fedge.view.report import document, page

log = logging.getLogger(__name__)
LIST_SCRIPTS = ("base", "list")
QUIET = 15  # looks without news after which a stream says that it is still there
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


class Board:
    """This answers what a browser asks for."""

    def __init__(self, folder: Path) -> None:
        self.listing = Listing(folder)
        self.listing.start()
        self.closing = asyncio.Event()

    def app(self, hosts: frozenset[str] | None) -> ASGIApp:
        routes = [
            Route("/", self.runs), Route("/page", self.page), Route("/events", self.runs_events),
            Route("/page/events", self.page_events),
        ]  # fmt: skip
        return Guarded(Starlette(routes=routes), hosts)

    def runs(self, request: Request) -> Response:
        name = self.listing.folder.resolve().name or "/"
        return HTMLResponse(document(f"{name} · fedge", {"name": name, "rows": self.listing.latest()}, LIST_SCRIPTS))

    def page(self, request: Request) -> Response:
        """Show a run, a study, or several laid over one another: /page?of=NAME&of=NAME."""
        try:
            data = self.listing.data(request.query_params.getlist("of"))
        except FedgeError as problem:
            return PlainTextResponse(f"{problem}\n", status_code=404)
        return HTMLResponse(page(data, live=f"/page/events?{request.url.query}"))

    async def runs_events(self, request: Request) -> Response:
        known: dict[str, str] = {}

        def news() -> str | None:
            rows = {row["name"]: json.dumps(row) for row in self.listing.rows()}
            changed = [text for name, text in rows.items() if known.get(name) != text]
            gone = [name for name in known if name not in rows]
            known.clear()
            known.update(rows)
            return f'{{"rows":[{",".join(changed)}],"gone":{json.dumps(gone)}}}' if changed or gone else None

        return self.stream("rows", news)

    async def page_events(self, request: Request) -> Response:
        names, before = request.query_params.getlist("of"), [None]

        def news() -> str | None:
            try:
                look: Any = self.listing.look(names)
                if look == before[0]:
                    return None
                before[0] = look
                return json.dumps(self.listing.data(names))
            except FedgeError:  # gone, or damaged for now: the page keeps what it shows
                return None

        return self.stream("page", news)

    def stream(self, event: str, news: Callable[[], str | None]) -> Response:
        async def parts() -> AsyncIterator[str]:
            silent = 0
            while not self.closing.is_set():
                try:
                    text = await run_in_threadpool(news)
                except Exception as problem:  # whatever a record holds, what it holds next may be shown again
                    text = None
                    log.debug("a page is not brought up to date: %r", problem)
                silent = 0 if text else silent + 1
                if text:
                    yield f"event: {event}\ndata: {text}\n\n"
                elif silent % QUIET == 0:
                    yield ": still here\n\n"
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.closing.wait(), SECOND)

        return StreamingResponse(parts(), media_type="text/event-stream")


class Guarded:
    """This answers only who calls the board by its own name: another site's page could call it by a name of its own."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        named = dict(scope.get("headers", ())).get(b"host", b"").decode("latin-1")
        if self._hosts is not None and re.sub(r":\d*$", "", named) not in self._hosts:
            await PlainTextResponse("this board answers on this machine only\n", 403)(scope, receive, sending)
            return
        await self._app(scope, receive, sending)


class Server(uvicorn.Server):
    """This leaves signals to whoever started it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Open the place where browsers ask."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as problem:
        code = problem.errno or 0
        if code < 0 or code == errno.EADDRNOTAVAIL:  # a name that nobody knows, or an address of somebody else's
            raise ConfigError(
                f"'{brief(host)}' is no address of this machine; leave --host out, or give 0.0.0.0"
            ) from None
        if code == errno.EADDRINUSE:
            raise RunError(
                f"port {port} is in use; give another with --port, or --port 0 for one that is free"
            ) from None
        reason = problem.strerror or "it is not possible"
        raise RunError(
            f"cannot listen on {brief(host)}, port {port}: {reason}; give another --host or --port"
        ) from None


def hosts_of(host: str) -> frozenset[str] | None:
    """Return the names by which a board may be called; None where others than this machine are meant to call it."""
    try:
        here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        here = False
    return frozenset({"localhost", "127.0.0.1", "[::1]", host}) if here else None


def serve(folder: Path, host: str, place: socket.socket, stop: StopRequest | None = None) -> None:
    """Answer until the wish to stop comes; streams that are open end then."""

    async def main() -> None:
        board = Board(folder)
        server = Server(uvicorn.Config(board.app(hosts_of(host)), log_level="warning", lifespan="off", ws="none",
                                       timeout_graceful_shutdown=2))  # fmt: skip

        async def watch() -> None:
            while stop is None or stop.signal is None:
                await asyncio.sleep(0.1)
            server.should_exit = True
            board.closing.set()

        watching = asyncio.create_task(watch())
        try:
            await server.serve(sockets=[place])
        finally:
            watching.cancel()

    with stop.heard() if stop is not None else contextlib.nullcontext(), contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
