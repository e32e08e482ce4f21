"""The contract says what an algorithm is, and the little an engine may know about it.

Every algorithm is one loop over three verbs:

    deal    cloud → edges: what each cell starts the global round with
    train   clients and their edge: `edge_rounds` × `local_steps` SGD steps, a weighted mean at the edge after each
            `local_steps`
    merge   edges → cloud, or edge ↔ edge: what is kept for the next round

`train` is the same for all and belongs to the engines; an algorithm says only which part of the model its cells share
inside an edge round (`shared`, HierSFL's server half; nothing for the others). The whole is the operator T_k (see
`Topology`), which each algorithm also states as a matrix, so that a test can hold its verbs against its mathematics.
`docs/decisions/0001-contract.md` shows how the five algorithms fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jax import Array

from fedge.core.schedule import Schedule
from fedge.core.topology import Matrix, Topology
from fedge.core.tree import Weights
from fedge.core.update import PLAIN, Way

if TYPE_CHECKING:
    import networkx as nx

State = Any
"""What lives between global rounds, any pytree of arrays: a model in the cloud, one per edge, an optimiser's memory."""


class Stack(NamedTuple):
    """A stack is cells whose models have the same shapes. HIST deals several where N does not divide its units."""

    ids: tuple[int, ...]  # which cells, known when the program is traced
    weights: Weights  # leading axis: one model for each of these cells
    mask: Weights | None = None  # 1 where the cell owns a coordinate, 0 where not; of an absent path it owns everything


class Round(NamedTuple):
    """This is what a role may know about the global round it is in."""

    number: Array  # from 0
    key: Array  # for the algorithm's own draws of this round
    cell_weight: Array  # m̃, one number per cell
    constants: Any = None  # the algorithm's own arrays, handed back to it


class Direct(NamedTuple):
    """Clients talk to the cloud, and there are no edges."""


class Cloud(NamedTuple):
    """Edges talk to their clients and to the cloud."""


class Gossip(NamedTuple):
    """Edges talk to their clients and, `steps` times per global round, to their neighbours in `graph`."""

    graph: nx.Graph
    mixing: Matrix  # P; column convention
    zeta: float
    steps: int  # α


class Sharing(Enum):
    """This says how a cell's clients share what `Algorithm.shared` names."""

    MEAN = "one copy at the edge, stepped by the clients' mean gradient"
    COPIES = "a copy for each client, averaged after every step"
    SEQUENTIAL = "one copy at the edge, stepped by one client after the other"


@dataclass(frozen=True)
class Algorithm:
    """An algorithm is a value of pure functions; `topology` is the hierarchy and the client weights it works with."""

    name: str
    topology: Topology
    schedule: Schedule
    start: Callable[[Weights], State]
    deal: Callable[[State, Round], tuple[Stack, ...]]
    merge: Callable[[State, tuple[Stack, ...], Round], State]
    evaluated: Callable[[State, Array], Weights]  # (state, m̃) → u, the model that is tested
    operator: Callable[[int, str], Matrix] | None  # (k, path) → T_k of the plain way; None where no matrix says it
    exchange: Direct | Cloud | Gossip  # who talks to whom: what costs and pictures are made from
    shared: Callable[[str], bool] | None = None  # paths the cell holds once and steps with its mean gradient
    sharing: Sharing = Sharing.MEAN
    messages: bool = False  # steps of a split model go by explicit messages
    client_stages: tuple[str, ...] | None = None  # what of a split model runs on the client
    constants: Any = None  # arrays that may differ between runs of one shape: passed in, not compiled in
    edges: Callable[[State], Weights] | None = None  # state → one model per edge, where edges keep their own
    parts: tuple[int, ...] | None = None  # which part of the model each cell trains, where several train the same
    whole_models: bool = True  # clients get the same weights of the model in every round
    cloud_mean: bool = False  # merging is the weighted mean over cells, so that another rule may take its place
    way: Way = PLAIN  # what happens to updates between client and cloud
    stale_statistics: bool = False  # the merged model has other activations than those BatchNorm's statistics are of

    @property
    def gossip(self) -> Gossip | None:
        """Say how edges exchange models with each other, where they do."""
        return self.exchange if isinstance(self.exchange, Gossip) else None

    @property
    def has_edges(self) -> bool:
        """Say whether there are edge servers between the clients and the cloud, or in its place."""
        return not isinstance(self.exchange, Direct)


class Knobs(Protocol):
    """Knobs are the keys that all algorithms read; what only one reads, it declares itself (`core/declared.py`)."""

    @property
    def local_steps(self) -> int: ...
    @property
    def edge_rounds(self) -> int: ...
    @property
    def seed(self) -> int: ...


class ModelDescription(Protocol):
    """Algorithms read this of a model: how it can be cut into units (HIST) or stages (HierSFL)."""

    @property
    def axes(self) -> dict[str, tuple[str | None, ...]]: ...
    @property
    def template(self) -> dict[str, Any]: ...  # path → something with a shape
    @property
    def stages(self) -> tuple[str, ...]: ...
    @property
    def trainable(self) -> frozenset[str]: ...
    @property
    def variances(self) -> frozenset[str]: ...
    def stage_of(self, path: str) -> str: ...


class Factory(Protocol):
    """A factory makes an algorithm from a configuration, the clients' topology and a model's description.

    Keyword-only parameters are the algorithm's own keys: their annotations say what they take and mean.
    """

    def __call__(self, knobs: Knobs, topology: Topology, model: ModelDescription, **own: Any) -> Algorithm: ...
