"""The table in docs/updates.md, of which update combines with which algorithm, is made here from what fedge says.

`python -m tests.updates.test_table` writes it anew.
"""

from pathlib import Path

import numpy as np

from fedge.core.topology import Topology
from fedge.errors import ConfigError
from fedge.experiment.build import make_algorithm
from fedge.experiment.config import Config, update_fields
from fedge.models import make
from fedge.updates import UPDATES

PAGE = Path(__file__).parents[2] / "docs/updates.md"
BEGIN, END = "<!-- table: python -m tests.updates.test_table -->\n", "<!-- end of table -->\n"
ALGORITHMS = ("fedavg", "hierfavg", "hist", "sdfeel", "hiersfl")
ROWS = (
    {"prox": "0.01"},
    {"prox": "0.01", "prox_anchor": "cloud"},
    {"correction": "scaffold"},
    {"correction": "mtgc"},
    {"codec": "qsgd8"},
    {"codec": "topk:0.01"},
    {"codec": "topk:0.01:plain"},
    {"down_codec": "qsgd8"},
    {"cloud_codec": "qsgd8"},
    {"edge_rule": "trimmed:0.2"},
    {"cloud_rule": "median"},
    {"edge_server": "momentum"},
    {"server": "adam"},
)
MODEL = make("mlp", (4, 4, 1), 10)
TOPOLOGY = Topology.of(np.repeat(np.arange(4), 5), np.ones(20))


def answer(algorithm, keys):
    """Say why an algorithm cannot have this update, or None where it can."""
    try:
        made = make_algorithm(Config.of({"algorithm": algorithm, "clients": 20} | keys), TOPOLOGY, MODEL)
    except ConfigError as problem:
        return str(problem)
    plain = make_algorithm(Config.of({"algorithm": algorithm, "clients": 20}), TOPOLOGY, MODEL)
    assert (made.way, made.merge) != (plain.way, plain.merge)  # what is allowed does something
    return None


def table():
    lines, whys = ["| | " + " | ".join(f"`{a}`" for a in ALGORITHMS) + " |", "|---" * (len(ALGORITHMS) + 1) + "|"], []
    for keys in ROWS:
        row = []
        for algorithm in ALGORITHMS:
            why = answer(algorithm, keys)
            if why is not None and why not in whys:
                whys.append(why)
            row.append("yes" if why is None else f"no ({whys.index(why) + 1})")
        lines.append("| " + " ".join(f"`{k}={v}`" for k, v in keys.items()) + " | " + " | ".join(row) + " |")
    return "\n".join([*lines, "", *(f"{n}. {why}." for n, why in enumerate(whys, 1)), ""])


def test_the_page_has_the_table_that_fedge_makes():
    before, _, rest = PAGE.read_text().partition(BEGIN)
    assert before
    assert rest.partition(END)[0] == table()


def test_every_key_of_an_update_is_on_the_page():
    page = PAGE.read_text()
    assert [key for key in update_fields() if f"`{key}" not in page] == []
    assert {key for keys in ROWS for key in keys} >= update_fields().keys() - {
        key for key in update_fields() if key.startswith(("server_", "edge_server_"))
    }
    assert len(UPDATES) == 6


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])
