"""SCAFFOLD and MTGC against their papers' loops, on quadratic losses, in float64; nothing here is compiled."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fedge.core.update import Correction
from fedge.updates.mtgc import MTGC
from fedge.updates.scaffold import SCAFFOLD

TIGHT = {"atol": 1e-12, "rtol": 0}
H, E, LR = 3, 4, 0.05
CELLS = {0: (0, 1, 2), 1: (3, 4), 2: (5, 6, 7, 8)}
NONE = Correction("none", False, lambda c, d: {"w": np.zeros(4)}, lambda c, d, x, s: c, lambda c, x, s: c,
                  lambda d, x: d, lambda d, x, s: d)  # fmt: skip


class Problem:
    """Client i's loss is ½wᵀA_i w − b_iᵀw; shares are of the whole."""

    def __init__(self, clients=9, seed=0):
        rng = np.random.default_rng(seed)
        self.a = np.stack([np.diag(rng.uniform(0.5, 3, 4)) for _ in range(clients)])
        self.b = rng.normal(size=(clients, 4)) * 3
        self.m = rng.uniform(1, 3, clients)
        self.m /= self.m.sum()

    def gradient(self, i, w):
        return self.a[i] @ w - self.b[i]

    @property
    def best(self):
        return np.linalg.solve(np.tensordot(self.m, self.a, 1), self.m @ self.b)


def everybody(number, members):
    return members


def some(number, members):
    """Leave one client out, another one in each edge round."""
    return [i for i in members if i != members[number % len(members)]]


def run(problem, correction, rounds, cells=CELLS, edge_rounds=E, takes_part=everybody):
    """Do what an engine does with a correction; return the model and the rows of clients and of cells."""
    zero = {"w": np.zeros(4)}
    w, c, d = zero["w"], dict.fromkeys(range(len(problem.m)), zero), dict.fromkeys(cells, zero)
    for r in range(rounds):
        models = {}
        if not correction.persistent:
            c = dict.fromkeys(c, zero)
        for j, members in cells.items():
            edge, whole = w, sum(problem.m[i] for i in members)
            for e in range(edge_rounds):
                here = takes_part(r * edge_rounds + e, members)
                moved, change, weight = {}, 0, sum(problem.m[i] for i in here)
                for i in here:
                    own = edge
                    for _ in range(H):
                        own = own - LR * (problem.gradient(i, own) + correction.shift(c[i], d[j])["w"])
                    moved[i] = own - edge
                    row = correction.after_steps(c[i], d[j], {"w": moved[i]}, H * LR)
                    change = change + problem.m[i] / whole * (row["w"] - c[i]["w"])
                    c[i] = row
                step = sum(problem.m[i] / weight * moved[i] for i in here)
                edge = edge + step
                for i in here:
                    c[i] = correction.after_edge(c[i], {"w": step}, H * LR)
                d[j] = correction.cell_after_edge(d[j], {"w": change})
            models[j] = edge
        w = sum(sum(problem.m[i] for i in cells[j]) * edge for j, edge in models.items())
        d = {j: correction.cell_after_cloud(d[j], {"w": models[j] - w}, H * edge_rounds * LR) for j in cells}
    return w, np.stack([c[i]["w"] for i in c]), np.stack([d[j]["w"] for j in d])


def scaffold_of_the_paper(problem, members, rounds, takes_part):
    """Algorithm 1 with option II and a server step of 1: x is the server's model, y_i a client's."""
    share = problem.m / problem.m[list(members)].sum()
    x, c, own = np.zeros(4), np.zeros(4), np.zeros((len(problem.m), 4))
    for r in range(rounds):
        drawn = takes_part(r, members)
        y, before = {i: x.copy() for i in drawn}, own.copy()
        for i in drawn:
            for _ in range(H):
                y[i] -= LR * (problem.gradient(i, y[i]) - own[i] + c)
            own[i] = own[i] - c + (x - y[i]) / (H * LR)
        x = sum(share[i] * y[i] for i in drawn) / sum(share[i] for i in drawn)
        c = c + sum(share[i] * (own[i] - before[i]) for i in drawn)
    return x, own, c


def mtgc_of_the_paper(problem, rounds):
    """The update rules as printed: z from x_i − x̄_j after each edge average, y from x̄_j − x̄ after each of the cloud."""
    x, y = np.zeros(4), np.zeros((len(CELLS), 4))
    for _ in range(rounds):
        z, group = np.zeros((len(problem.m), 4)), np.tile(x, (len(CELLS), 1))
        for _ in range(E):
            local = np.stack([group[j] for j, members in CELLS.items() for _ in members])
            for i, j in [(i, j) for j, members in CELLS.items() for i in members]:
                for _ in range(H):
                    local[i] -= LR * (problem.gradient(i, local[i]) + z[i] + y[j])
            for j, members in CELLS.items():
                inside = list(members)
                group[j] = problem.m[inside] @ local[inside] / problem.m[inside].sum()
                z[inside] += (local[inside] - group[j]) / (H * LR)
        weight = np.array([problem.m[list(members)].sum() for members in CELLS.values()])
        x = weight @ group
        y += (group - x) / (H * E * LR)
    return x, z, y


@pytest.mark.parametrize("takes_part", [everybody, some])
def test_scaffold_with_one_server_is_the_papers(takes_part):
    problem = Problem()
    alone = {0: tuple(range(9))}
    w, c, d = run(problem, SCAFFOLD, 6, alone, 1, takes_part)
    x, own, server = scaffold_of_the_paper(problem, alone[0], 6, takes_part)
    np.testing.assert_allclose(w, x, **TIGHT)
    np.testing.assert_allclose(c, own, **TIGHT)
    np.testing.assert_allclose(d[0], server, **TIGHT)


def test_scaffold_within_a_cell_is_the_papers_of_that_cell():
    """In one global round cells do not meet, so each is SCAFFOLD with its own server, for E rounds."""
    problem = Problem(seed=1)
    _, c, d = run(problem, SCAFFOLD, 1)
    for j, members in CELLS.items():
        _, own, server = scaffold_of_the_paper(problem, members, E, everybody)
        np.testing.assert_allclose(c[list(members)], own[list(members)], **TIGHT)
        np.testing.assert_allclose(d[j], server, **TIGHT)


def test_mtgc_is_the_papers():
    problem = Problem(seed=2)
    for actual, expected in zip(run(problem, MTGC, 5), mtgc_of_the_paper(problem, 5), strict=True):
        np.testing.assert_allclose(actual, expected, **TIGHT)


@pytest.mark.parametrize("takes_part", [everybody, some])
def test_a_cells_row_of_scaffold_is_the_mean_of_its_clients(takes_part):
    """Σ_{i∈d} (m_i/m̃_d) c_i = c_d, whoever takes part."""
    problem = Problem(seed=3)
    _, c, d = run(problem, SCAFFOLD, 5, takes_part=takes_part)
    for j, members in CELLS.items():
        share = problem.m[list(members)]
        np.testing.assert_allclose(share @ c[list(members)] / share.sum(), d[j], **TIGHT)
        assert abs(d[j]).max() > 0.01


def test_mtgcs_rows_sum_to_zero():
    """Σ_{i∈d} m_i z_i = 0 in each cell and Σ_d m̃_d y_d = 0: corrections move nobody on average."""
    problem = Problem(seed=4)
    _, z, y = run(problem, MTGC, 3)
    for members in CELLS.values():
        np.testing.assert_allclose(problem.m[list(members)] @ z[list(members)], 0, **TIGHT)
    np.testing.assert_allclose([problem.m[list(members)].sum() for members in CELLS.values()] @ y, 0, **TIGHT)
    assert min(abs(z).max(), abs(y).max()) > 0.01


def test_mtgc_with_one_cell_is_scaffold_until_its_rows_begin_again():
    """Within a global round z_i = c_d − c_i of SCAFFOLD's option II when all take part; y_d stays 0."""
    problem, alone = Problem(seed=5), {0: tuple(range(9))}
    for rounds in range(1, 6):
        w, z, y = run(problem, MTGC, 1, alone, rounds)
        x, c, d = run(problem, SCAFFOLD, 1, alone, rounds)
        np.testing.assert_allclose(w, x, **TIGHT)
        np.testing.assert_allclose(z, d[0] - c, **TIGHT)
        np.testing.assert_allclose(y, 0, **TIGHT)
    twice = [run(problem, made, 2, alone, 2)[0] for made in (MTGC, SCAFFOLD)]
    assert abs(twice[0] - twice[1]).max() > 1e-4  # z began again at 0, and c did not


def test_corrections_find_the_minimum_that_local_steps_miss():
    """HierFAVG stays away from it; SCAFFOLD comes to it with one server only; MTGC comes near, and to it without reset.

    As z_i begins each global round at 0, its first edge round is corrected by y_d alone.
    """
    problem, alone = Problem(seed=6), {0: tuple(range(9))}
    off = lambda *made: abs(run(problem, *made)[0] - problem.best).max()  # noqa: E731
    assert off(NONE, 150) > 0.04
    assert off(SCAFFOLD, 150) > 0.04
    assert 1e-3 < off(MTGC, 150) < 0.004
    assert off(replace(MTGC, persistent=True), 150) < 1e-12
    assert off(NONE, 300, alone, 1) > 0.01
    assert off(SCAFFOLD, 300, alone, 1) < 1e-8


def test_rows_keep_their_dtype():
    """H·γ may be more precise than the weights; what a client keeps lies where it lay before."""
    row, steps = {"w": np.ones(2, np.float32)}, np.float64(0.1)
    for made in (SCAFFOLD, MTGC):
        rows = [made.shift(row, row), made.after_steps(row, row, row, steps), made.after_edge(row, row, steps),
                made.cell_after_edge(row, row), made.cell_after_cloud(row, row, steps)]  # fmt: skip
        assert {w.dtype for w in itertools.chain(*(r.values() for r in rows))} == {np.dtype(np.float32)}
