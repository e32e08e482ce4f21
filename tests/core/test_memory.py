"""What is left of memory is read from the files in which Linux says so."""

import math

import pytest

from fedge.core import memory
from fedge.core.graph import edge_graph
from fedge.core.memory import free_memory, require_memory
from fedge.errors import ConfigError
from tests.helpers import small


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(str(text))


HOST = {"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 900 kB\n"}


def version2(folder, limit, used, inactive=0):
    stat = f"anon 5\ninactive_file {inactive}\n"
    return {f"{folder}/memory.max": limit, f"{folder}/memory.current": used, f"{folder}/memory.stat": stat}


def test_without_such_files_nothing_is_known(tmp_path):
    assert free_memory(tmp_path) == math.inf


def test_a_host_without_containers_has_what_is_available(tmp_path):
    write(tmp_path, HOST | {"proc/self/cgroup": "0::/user\n"} | version2("sys/fs/cgroup/user", "max", 5))
    assert free_memory(tmp_path) == 900 * 1024


def test_of_a_containers_limit_what_is_used_is_gone_but_not_what_files_hold(tmp_path):
    write(
        tmp_path, HOST | {"proc/self/cgroup": "0::/\n"} | version2("sys/fs/cgroup", 500_000, 420_000, inactive=30_000)
    )
    assert free_memory(tmp_path) == 500_000 - 420_000 + 30_000


def test_the_tightest_of_nested_groups_counts(tmp_path):
    files = version2("sys/fs/cgroup/a", 100_000, 60_000) | version2("sys/fs/cgroup/a/b", 90_000, 10_000)
    write(tmp_path, HOST | {"proc/self/cgroup": "0::/a/b\n"} | files)
    assert free_memory(tmp_path) == 40_000


def test_control_groups_of_version_1(tmp_path):
    folder = "sys/fs/cgroup/memory/job"
    write(tmp_path, HOST | {
        "proc/self/cgroup": "5:cpu:/other\n4:hugetlb,memory:/job\n",
        f"{folder}/memory.limit_in_bytes": 200_000, f"{folder}/memory.usage_in_bytes": 150_000,
        f"{folder}/memory.stat": "total_inactive_file 20000\n",
    })  # fmt: skip
    assert free_memory(tmp_path) == 70_000


def test_what_cannot_fit_is_refused_with_the_figures(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 2e9)
    require_memory("a table", 2e9, "take less")
    with pytest.raises(ConfigError, match=r"^a table needs 3\.5 GB of memory and 2 GB are free; take less$"):
        require_memory("a table", 3.5e9, "take less")


@pytest.mark.parametrize("name", ["complete", "ring"])
def test_a_graph_between_a_million_edge_servers_is_refused_before_it_is_made(name):
    with pytest.raises(ConfigError, match=rf"graph={name} with cells=1000000 needs .* GB .* take fewer cells"):
        edge_graph(name, 1_000_000)


def test_a_model_for_each_edge_is_refused_where_there_is_no_room(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1e6)
    with pytest.raises(ConfigError, match=r"sdfeel with cells=60 and a model of .* needs .* GB of memory"):
        small(algorithm="sdfeel", clients=60, cells=60)
