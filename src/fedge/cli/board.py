"""`fedge board` shows the runs of a folder in a browser, also while they train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.common import guarded, importing, stop_request
from fedge.errors import RunError

app = typer.Typer()


@app.command("board")
def board_command(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="where runs lie, or one run or study")] = Path(
        "runs"
    ),
    host: Annotated[str, typer.Option("--host", help="who may look: by default this machine alone")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free")] = 8600,
) -> None:
    """List the runs of a folder, open them while they train, lay them over one another: in a browser, read only."""
    with guarded():
        if not folder.is_dir():
            raise RunError(f"{folder} is no folder; give one that holds runs")
        with importing():
            from fedge.view.board import listen, serve
        with listen(host, port) as place:
            shown = f"[{host}]" if ":" in host else host
            print(f"board of {folder}: http://{shown}:{place.getsockname()[1]}/  (Ctrl-C ends it)", flush=True)
            stop = stop_request()
            if stop is not None:
                stop.effect = "the board closes"
            serve(folder, host, place, stop)
