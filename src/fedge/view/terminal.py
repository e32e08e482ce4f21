"""Draw pictures and tables for a terminal."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedge.cost.cuts import Price
from fedge.data import DATASETS
from fedge.data.dataset import Strata
from fedge.data.sources import where
from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.experiment.keys import Key
from fedge.runner.result import Result
from fedge.runner.rows import tested
from fedge.view.numbers import metric_text, on_request, words
from fedge.view.tables import table

BARS = " ▁▂▃▄▅▆▇█"
NARROW = 60  # columns of a terminal on which prose is broken into lines here
MATRIX = 16  # edges of a graph that is drawn as a matrix
WIDTH = 14
BARS_SHOWN = 12  # bars of a cell; more classes than that share them
LISTED = 100  # cells of a table with a line for each
NAMED = 40  # letters of all classes' names in a line
LETTERS = 12  # of a class's name above a column
KEY_COLUMN = 28  # characters before what a key means


def sparkline(counts: NDArray[np.int64]) -> str:
    """Draw one character per class, as high as its share of the fullest one; a class that is there is never blank."""
    top = max(int(counts.max()), 1)
    return "".join(BARS[0 if n == 0 else max(1, round(8 * int(n) / top))] for n in counts)


def range_of(numbers: NDArray[Any]) -> str:
    """Write the one number there is, or the smallest and the largest."""
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def topology_picture(made: Experiment, compared: bool = False, width: int = 80) -> str:
    """Draw cloud, edges and clients as lines of text; under each cell, which labels its clients hold.

    Algorithms that are compared share one hierarchy, so its edges are drawn although the first may not use them.
    """
    edges, parts = compared or made.job.algorithm.has_edges, None if compared else made.job.algorithm.parts
    cell, cells, (label, classes, _) = made.topology.cell, made.topology.cells, made.dataset.strata
    beside = max(width // WIDTH, 2)
    drawn = cells if cells <= beside else beside - 1
    labels = made.partition.label_counts(label, classes)
    group = -(-classes // BARS_SHOWN)  # classes in one bar
    columns = []
    for d in range(drawn):
        own = cell == d
        bars = sparkline(np.add.reduceat(labels[own].sum(0), np.arange(0, classes, group)))
        bars = "" if made.dataset.task == "tokens" else bars  # which have no kinds
        part = "" if parts is None else f"submodel {parts[d]}"
        columns.append((f"edge {d}", part, f"{own.sum():,} client{'s' if own.sum() > 1 else ''}", bars))
    if cells > drawn:
        more = f"+{cells - drawn:,} more"
        columns.append((more, "", "", "") if edges else ("", "", more, ""))
    total = WIDTH * len(columns)
    lines = ["cloud".center(total), _wire(len(columns))]
    if made.job.algorithm.gossip:
        above = textwrap.wrap("no cloud: edges exchange models with their neighbours", width)
        lines = [line.center(total) for line in above]
    rows = [0] * edges + [1] * (parts is not None) + [2, 3]
    lines += ["".join(column[row].center(WIDTH) for column in columns) for row in rows]
    each = bars_mean(made.dataset.strata, group, "classes" if made.dataset.classes else "ranges of the target")
    notes = [] if edges else ["no edges: every client talks to the cloud"]
    notes += [] if made.dataset.task == "tokens" else [f"bars: samples of {each} in a cell"]
    said = ";\n".join(notes)
    lines += (
        [line.center(total) for note in f"({said})".splitlines() for line in textwrap.wrap(note, width)] if said else []
    )
    return "\n".join(line.rstrip() for line in lines)


def bars_mean(strata: Strata, group: int, noun: str) -> str:
    """Say what the bars of a cell stand for: classes by their names, where these fit into a line."""
    named = ", ".join(strata.names)
    if group == 1 and 0 < len(named) <= NAMED:
        return named
    return f"each of the {strata.kinds} {noun}" if group == 1 else f"every {group} of the {strata.kinds} {noun}"


def _wire(columns: int) -> str:
    """Draw the line that joins the cloud to what is below it."""
    centres = [WIDTH * i + WIDTH // 2 for i in range(columns)]
    wire = [" "] * (WIDTH * columns)
    if columns == 1:
        wire[centres[0]] = "│"
        return "".join(wire)
    wire[centres[0] : centres[-1] + 1] = "─" * (centres[-1] - centres[0] + 1)
    for c in centres:
        wire[c] = "┬"
    wire[centres[0]], wire[centres[-1]] = "┌", "┐"
    middle = (centres[0] + centres[-1]) // 2
    wire[middle] = "┼" if wire[middle] == "┬" else "┴"
    return "".join(wire)


def graph_picture(made: Experiment, width: int = 80) -> str | None:
    """Draw the graph between edges as a matrix, and say what it does to a disagreement; None where none gossips."""
    exchange = made.job.algorithm.gossip
    if exchange is None:
        return None
    graph, count = exchange.graph, exchange.graph.number_of_nodes()
    degree = np.array([d for _, d in graph.degree])
    lines = [
        f"edge graph: {count:,} edges, {graph.number_of_edges():,} links; ζ = {exchange.zeta:.4g}, "
        f"ζ^α = {exchange.zeta**exchange.steps:.4g} (α = {exchange.steps})",
        f"smallest entry of the mixing matrix P: {exchange.mixing.min():.3g}"
        + (" (negative: an edge may leave\nthe hull of its neighbours' models)" if exchange.mixing.min() < 0 else ""),
    ]
    if width < NARROW:
        lines = textwrap.wrap(" ".join("; ".join(lines).split()), width)
    if count > MATRIX or 4 + 3 * count > width:
        return "\n".join([*lines, f"links at an edge: {range_of(degree)}"])
    lines.append("    " + " ".join(f"{d:>2}" for d in range(count)))
    for a in range(count):
        row = " ".join(" ■" if graph.has_edge(a, b) else " ·" for b in range(count))
        lines.append(f"{a:>3} {row}")
    return "\n".join(lines)


def describe(made: Experiment, width: int = 80) -> str:
    """Say what is about to run."""
    c = made.config
    said = (
        f"{made.dataset.name}, {c.partition}: {c.clients:,} clients with {range_of(made.partition.size)} samples each, "
        f"in {c.cells:,} cells\n"
        f"{made.model.name}, {made.model.parameters:,} parameters; "
        f"batch {c.batch}, learning rate {c.lr:g}, seed {c.seed}{f'; from {c.init}' if c.init else ''}\n"
        f"{'' if c.rounds is None else f'{c.rounds} '}global rounds of {c.edge_rounds} edge rounds × "
        f"{c.local_steps} local steps"
    )
    return said if width >= NARROW else "\n".join(textwrap.fill(line, width) for line in said.splitlines())


def result_table(results: list[Result], width: int = 200) -> Table | Text:
    """Return the table at the end of a run or a comparison."""
    main, *others = tested(results[0].final)
    names = {name: f"final {words(name)}" if name == main else words(name) for name in (main, *others)}
    names["loss"] = "test loss"
    target = results[0].experiment.target
    goal = [f"{words(target.metric)} {target.value:g}"] if target else []  # a run that has one ends there
    heads = ["algorithm", *names.values(), *goal, "simulated s", "sent MB", "client steps/s", "wall s"]
    rows = []
    for r in results:
        sent = sum(r.final["bytes"].values()) / 1e6
        rows.append([
            r.algorithm, *(metric_text(r.final, name) for name in names),
            *(f"round {r.reached.round:,}" if r.reached else "not reached" for _ in goal),
            f"{r.final['simulated_seconds']:,.1f}", f"{sent:,.0f}",
            f"{r.client_steps_per_second:,.0f}", f"{r.wall_seconds:.1f}",
        ])  # fmt: skip
    return table(width, heads, rows)


def ending(results: list[Result]) -> str:
    """Say of each run how good it was at best, beside its end; a run of one row has nothing to add."""
    lines = []
    for r in results:
        main = tested(r.final)[0]
        rows = [row for row in r.history if row.get(main) is not None]
        if len(rows) < 2:
            continue
        higher = r.experiment.job.task.objective.metric(main).higher_is_better
        best = (max if higher else min)(rows, key=lambda row: row[main])
        when = (
            "at the end"
            if best is rows[-1]
            else f"after round {best['round']:,}; {metric_text(r.final, main)} at the end"
        )
        name = f"{r.algorithm}: " if len(results) > 1 else ""
        lines.append(f"{name}best {words(main)} {metric_text(best, main)}, {when}")
    return "\n".join(lines)


def cut_row(price: Price) -> dict[str, Any]:
    place = price.place
    return {
        "cut": place.name,
        "activations": place.activations,
        "client_parameters": place.client_parameters,
        "server_parameters": price.parameters - place.client_parameters,
        "client_work": place.client_work,
        "activation_seconds": price.activation_seconds,
        "round_seconds": price.round_seconds,
        "upload_bytes": price.upload_bits // 8,
        "whole_model_bytes": price.whole_bits // 8,
        "beats_sending_the_model": price.upload_bits < price.whole_bits,
    }


def cut_lines(prices: list[Price]) -> str:
    """Write one line per place to cut, narrow enough for any terminal."""
    first, width = prices[0], prices[0].place.bits // 8
    stored = "one byte" if width == 1 else f"{width} bytes"
    lines = [
        f"{first.parameters:,} parameters; batch {first.batch}; a global round is {first.schedule.edge_rounds} × "
        f"{first.schedule.local_steps} local steps",
        "        numbers at            parameters  client    t_act     round  sends  less",
        "cut        the cut     client       edge    work        s         s     MB",
    ]
    for row in map(cut_row, prices):
        less = "yes" if row["beats_sending_the_model"] else "no"
        lines.append(
            f"{row['cut']:7} {row['activations']:>10,} {row['client_parameters']:>10,} {row['server_parameters']:>10,} "
            f"{row['client_work']:>7.1%} {row['activation_seconds']:>8.4f} {row['round_seconds']:>9,.3f} "
            f"{row['upload_bytes'] / 1e6:>6,.2f}  {'–' if row['cut'] == 'top' else less}"
        )
    lines += [
        "numbers at the cut: of a sample; t_act: a minibatch of them, one way",
        "sends: a client, per global round; less: than sending the whole model",
        f"cut 0 sends the inputs as they are stored, {stored} each; top is not split",
    ]
    return "\n".join(lines)


def data_lines() -> str:
    """Write one line per data set: what it is and where it would be read from."""
    lines = []
    for source in DATASETS.values():
        place = where(source.name) or f"not here yet: fedge data get {source.name}"
        samples = f"{source.samples[0]:,} + {source.samples[1]:,}"
        lines.append(f"{source.name:<14} {samples:<16} {source.title:<31} {place}")
    return "\n".join(lines)


def keys_text(keys: list[Key], width: int) -> str:
    """List keys by who reads them: each with its default, what it means, and what it takes."""
    lines: list[str] = []
    for number, key in enumerate(keys):
        if number == 0 or key.read_by != keys[number - 1].read_by:
            lines += ["", f"read by {key.read_by}"]
        given = f"  {key.name}={value_text(key.default)}"
        column = KEY_COLUMN if width >= 2 * KEY_COLUMN else 4
        beside = len(given) < column
        said = textwrap.wrap(f"{key.meaning} ({key.takes})", max(width - column, 20))
        lines += [given.ljust(column) + said.pop(0)] if beside else [given]
        lines += [" " * column + line for line in said]
    return "\n".join(lines[1:])


def key_lines(key: Key) -> str:
    """Write all about one key."""
    own = [f"{algorithm}: {value_text(value) or 'none'}" for algorithm, value in key.defaults.items()]
    default = value_text(key.default) or "none"
    return "\n".join([
        f"{key.name}: {key.meaning}",
        f"  takes    {key.takes}",
        f"  default  {default}" + (f"; {', '.join(own)}" if own else ""),
        f"  read by  {key.read_by}",
    ])  # fmt: skip


def value_text(value: Any) -> str:
    """Write a value as it is given on the command line; nothing for one that is not set."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


def cell_lines(made: Experiment) -> str:
    """Write the samples per cell and class, one line per cell."""
    (label, classes, names), cells = made.dataset.strata, made.topology.cells
    counts = made.partition.label_counts(label, classes)
    order = np.argsort(made.topology.cell, kind="stable")
    clients = np.bincount(made.topology.cell)
    rows = np.add.reduceat(counts[order], np.cumsum(clients) - clients)
    heads = [name[:LETTERS] for name in names] or [str(c) for c in range(classes)]
    width = max(5, *map(len, heads))
    lines = [f"{'cell':>4} {'clients':>7} {'samples':>7}  " + " ".join(f"{head:>{width}}" for head in heads)]
    for d in range(min(cells, LISTED)):
        lines.append(f"{d:>4} {clients[d]:>7} {rows[d].sum():>7}  " + " ".join(f"{n:>{width}}" for n in rows[d]))
    if cells > LISTED:
        lines.append(f"and {cells - LISTED:,} more cells")
    return "\n".join(lines)


def run_lines(summary: dict[str, Any]) -> str:
    """Write what `fedge show` says of a run."""
    row, config = summary["final"], summary["config"]
    defaults = Config.of({"algorithm": summary["algorithm"]}).model_dump()  # the algorithm's own among them
    chosen = [f"{k}={v}" for k, v in config.items() if k in defaults and v is not None and v != defaults[k]]
    length = f" of {summary['rounds']}" if summary["rounds"] else ""
    lines = [
        f"{summary['out']}: {summary['algorithm']}, {summary['state']}",
        f"  begun {summary['begun']}" + (f", ended {summary['ended']}" if summary["ended"] else ""),
        "  keys beside the defaults: " + ", ".join(c for c in chosen if not c.startswith("algorithm=")),
    ]
    if summary["command"]:
        lines.append(f"  command: {summary['command']}")
    if row is not None:
        numbers = ", ".join(f"{words(name)} {metric_text(row, name)}" for name in tested(row))
        lines.append(f"  round {row['round']}{length}: {numbers}")
        lines += [f"  {said}"] if (said := on_request(row)) else []
    if isinstance(reached := summary.get("reached"), dict):
        lines.append(f"  {reached.get('metric')} {reached.get('target')} reached after round {reached.get('round')}")
    if "verified" in summary:
        lines.append("  as it was written: " + "; ".join(summary["verified"]))
    return "\n".join(lines)


def say(console: Console, text: str) -> None:
    """Print plain text as it is: no markup, no wrapping."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
