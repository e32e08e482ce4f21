"""Others may watch a node while it works: its log as lines of JSON, its numbers as metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedge.errors import FleetError, brief
from fedge.net.log_file import LogFile, quiet
from fedge.net.metrics import LOOPBACK, Exporter
from fedge.net.names import Name
from fedge.net.status import Status

LOGGER = logging.getLogger("fedge")


@contextmanager
def watched(
    node: Name, read: Callable[[], Status], log: Path | None = None, metrics: str | None = None
) -> Iterator[None]:
    """Write the log to a file and serve metrics, at PORT of this machine or at HOST:PORT, until the block ends."""
    with ExitStack() as stack:
        if log is not None:
            handler = LogFile(log, node)
            stack.callback(handler.close)
            for logger in (LOGGER, quiet):
                logger.addHandler(handler)
                stack.callback(logger.removeHandler, handler)
        if metrics is not None:
            host, _, port = metrics.rpartition(":")
            if not port.isdecimal():
                raise FleetError(f"metrics cannot be at {brief(metrics)}; give PORT, or HOST:PORT")
            exporter = Exporter(read, int(port), host or LOOPBACK)
            stack.callback(exporter.close)
            LOGGER.info("%s has metrics at http://%s/metrics", node.words, exporter.address)
        yield
