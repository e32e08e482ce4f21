import pytest

from fedge.view import hierarchy, terminal
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
