"""A node's status as metrics that Prometheus reads: text over HTTP, on request only, from a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedge.errors import FleetError
from fedge.net.status import Status

LOOPBACK = "127.0.0.1"
KIND = "text/plain; version=0.0.4; charset=utf-8"
FAMILIES = {  # name → kind, meaning
    "fedge_rounds_total": ("counter", "Global rounds that have ended."),
    "fedge_round_seconds": ("gauge", "Seconds that the last global round took."),
    "fedge_connected": ("gauge", "Nodes that are connected."),
    "fedge_missing_total": ("counter", "Answers that were late, lost or refused."),
    "fedge_payload_bytes_total": ("counter", "Bytes of tensors on a link."),
    "fedge_framing_bytes_total": ("counter", "Bytes on a link that are no tensor's."),
    "fedge_score": ("gauge", "The newest evaluation."),
}
Labels = Mapping[str, str]


def samples(status: Status) -> Iterator[tuple[str, Labels, float]]:
    """Yield a status number by number."""
    yield "fedge_rounds_total", {}, status.round
    if status.seconds is not None:
        yield "fedge_round_seconds", {}, status.seconds
    for role in sorted({name.role for name in status.connected} | {"client"}):
        yield "fedge_connected", {"role": role}, sum(name.role == role for name in status.connected)
    yield "fedge_missing_total", {}, status.missing
    for place, family in enumerate(("fedge_payload_bytes_total", "fedge_framing_bytes_total")):
        for tier, links in sorted(status.sent.items()):
            for name, each in sorted(links.items()):
                yield family, {"tier": tier, "link": str(name)}, each[place]
    for score, value in sorted(status.scores.items()):
        yield "fedge_score", {"name": score}, value


def text_of(status: Status) -> str:
    """Write a status in the text format of Prometheus."""
    rows: dict[str, list[str]] = {}
    for family, labels, value in samples(status):
        every = {"node": str(status.node), **labels}
        said = ",".join(f'{key}="{_escaped(text)}"' for key, text in every.items())
        rows.setdefault(family, []).append(f"{family}{{{said}}} {value!r}\n")
    return "".join(
        f"# HELP {family} {meaning}\n# TYPE {family} {kind}\n{''.join(rows[family])}"
        for family, (kind, meaning) in FAMILIES.items()
        if family in rows
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Exporter:
    """This serves a node's metrics until it is closed; port 0 is any that is free."""

    def __init__(self, read: Callable[[], Status], port: int, host: str = LOOPBACK) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the name that http.server calls
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "metrics are at /metrics")
                    return
                body = text_of(read()).encode()
                self.send_response(200)
                self.send_header("Content-Type", KIND)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *given: Any) -> None:
                """Say nothing: each node has a log of its own."""

        try:
            self._server = ThreadingHTTPServer((host, port), Answer)
        except OSError as problem:
            raise FleetError(
                f"cannot serve metrics at {host}:{port}: {problem.strerror or problem}; choose another port"
            ) from None
        except OverflowError:
            raise FleetError(f"metrics cannot be at port {port}; a port is a number below 65536") from None
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True, name="metrics")
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
