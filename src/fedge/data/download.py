"""Download one file with a known checksum: `python download.py URL SHA256 FOLDER`.

This runs as a process of its own (`attempt`), which can be ended whatever it waits for, a name server included.
"""

from __future__ import annotations

import logging
import sys

import pooch


def main(url: str, digest: str, folder: str) -> None:
    pooch.get_logger().setLevel(logging.ERROR)
    try:
        pooch.retrieve(
            url, known_hash=f"sha256:{digest}", fname=url.rsplit("/", 1)[1], path=folder,
            downloader=pooch.HTTPDownloader(timeout=20, chunk_size=2**16),
        )  # fmt: skip
    except Exception as problem:  # whatever went wrong, its first cause says it shortest
        cause: BaseException = problem
        while cause.__context__ is not None:
            cause = cause.__context__
        sys.exit(f"{type(cause).__name__}: {cause}")


if __name__ == "__main__":
    main(*sys.argv[1:])
