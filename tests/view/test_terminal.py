import codecs
import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedge.cli import plain
from fedge.view import hierarchy, tables, terminal
from tests.helpers import small


def test_edges_are_drawn_only_where_there_are_some():
    pictures = {name: terminal.topology_picture(small(algorithm=name)) for name in ("fedavg", "hierfavg", "sdfeel")}
    assert "edge" not in pictures["fedavg"].replace("no edges: every client talks to the cloud", "")
    assert pictures["fedavg"].count("clients") == 3  # cells of 7 clients: 3, 2 and 2, with their labels
    assert "edge 2" in pictures["hierfavg"]
    assert "cloud" in pictures["hierfavg"]
    assert "no cloud: edges exchange models" in pictures["sdfeel"]
    compared = terminal.topology_picture(small(algorithm="fedavg"), compared=True)
    assert compared == pictures["hierfavg"]


@pytest.mark.parametrize("algorithm", ["fedavg", "hierfavg", "sdfeel"])
def test_pictures_of_many_clients_and_cells_fit_a_terminal(algorithm):
    made = small(algorithm=algorithm, clients=800, cells=200, partition="drawn", client_samples=2)
    picture = terminal.topology_picture(made)
    assert "+196 more" in picture
    assert max(map(len, picture.splitlines())) <= 80
    if graph := terminal.graph_picture(made):
        assert len(graph.splitlines()) <= 4
        assert "links at an edge: 100" in graph  # of K₁₀₀,₁₀₀


def test_cells_that_train_the_same_submodel_say_so():
    made = small(algorithm="hist", cells=3, submodels=2)
    picture = terminal.topology_picture(made)
    assert picture.splitlines()[3].split() == ["submodel", "0", "submodel", "0", "submodel", "1"]
    assert "submodel" not in terminal.topology_picture(small(algorithm="hist", cells=3))
    colours = hierarchy.topology(made).axes[0].collections[0].get_facecolors()
    assert (colours[0] == colours[1]).all()
    assert not (colours[1] == colours[2]).all()


def test_a_table_of_cells_is_cut_short():
    made = small(clients=500, cells=250, partition="drawn", client_samples=2)
    lines = terminal.cell_lines(made).splitlines()
    assert len(lines) == terminal.LISTED + 2
    assert lines[-1] == "and 150 more cells"
    counts = made.partition.label_counts(made.dataset.y_train, 4)
    for d in (0, 99):
        assert [int(n) for n in lines[1 + d].split()] == [d, 2, 4, *counts[made.topology.roster[d]].sum(0)]


@pytest.mark.parametrize(("width", "beside"), [(40, 2), (80, 5), (160, 11)])
def test_pictures_take_the_width_there_is(width, beside):
    made = small(algorithm="sdfeel", clients=40, cells=20, partition="drawn", client_samples=2)
    picture = terminal.topology_picture(made, width=width)
    assert max(map(len, picture.splitlines())) <= width
    assert picture.count("edge ") == beside - 1
    assert f"+{20 - (beside - 1)} more" in picture
    assert max(map(len, terminal.describe(made, width).splitlines())) <= max(width, terminal.NARROW + 20)


def test_a_table_that_does_not_fit_becomes_blocks():
    heads, rows = ["algorithm", "final accuracy", "sent MB"], [["fedavg", "63.3%", "46"], ["sdfeel", "61.9%", ""]]
    needed = 1 + (3 + 9) + (3 + 8) + (3 + 4)  # the longest word of each column, and a border
    assert [column.header for column in tables.table(needed, heads, rows).columns] == heads
    assert tables.table(needed - 1, heads, rows, caption="over seeds").plain.splitlines() == [
        "fedavg", "  final accuracy  63.3%", "  sent MB         46", "sdfeel", "  final accuracy  61.9%", "over seeds",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [20, 79, 80, 81, 90, 100, 120])
def test_no_line_of_a_table_is_cut_off(width):
    """The results of a comparison to a target: the heads are wrapped before a column is lost."""
    heads = ["algorithm", "final accuracy", "test loss", "accuracy 0.3", "simulated s", "sent MB", "client steps/s",
             "wall s"]  # fmt: skip
    row = ["hierfavg", "60.5%", "1.5559", "not reached", "18.8", "65", "442", "12.3"]
    console = Console(width=width, file=io.StringIO())
    console.print(tables.table(width, heads, [row]))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width or "━" not in lines[0]
    for cell in row:
        assert sum(cell in line for line in lines) == 1
    if width == 120:
        assert sum("client steps/s" in line for line in lines) == 1  # in one piece where there is room


def test_the_end_says_when_a_run_was_best():
    task = small().job.task
    rows = [{"round": n, "accuracy": a, "loss": 1.0, "train_loss": 1.0} for n, a in ((1, 0.3), (2, 0.8), (3, 0.7))]
    run = SimpleNamespace(algorithm="x", final=rows[-1], history=rows,
                          experiment=SimpleNamespace(job=SimpleNamespace(task=task)))  # fmt: skip
    assert terminal.ending([run]) == "best accuracy 80.0%, after round 2; 70.0% at the end"
    run.history = rows[:2]
    assert terminal.ending([run, run]).splitlines() == ["x: best accuracy 80.0%, at the end"] * 2
    run.history = rows[:1]
    assert terminal.ending([run]) == ""


def test_a_stream_without_unicode_gets_drawings_in_ascii():
    plain.register()
    made = small(algorithm="sdfeel", clients=12, cells=6)
    said = "\n".join([terminal.topology_picture(made), terminal.graph_picture(made), "η ≥ 1 × τ1 … „Ä“ ✓"])
    stream = io.TextIOWrapper(buffer := io.BytesIO(), encoding="ascii", errors=plain.ERRORS)
    stream.write(said)
    stream.flush()
    found = buffer.getvalue().decode("ascii").splitlines()
    assert found[-1] == 'eta >= 1 x tau1 ... "A" ?'
    assert sum(line.count("?") for line in found[:-1]) == 0
    assert "zeta^alpha" in "".join(found)
    shape = [line for line in said.splitlines() if "■" in line or "█" in line or "┬" in line]
    assert {len(line) for line in shape} <= {len(line) for line in found}
    assert "-?-" in codecs.encode("─✓─", "latin-1", plain.ERRORS).decode("latin-1")
