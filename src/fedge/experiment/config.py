"""The configuration of a run: typed, frozen, refused at construction where it cannot be."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from fedge.algorithms import ALGORITHMS
from fedge.core.topology import GRAPHS
from fedge.cost.clock import SHANNON
from fedge.data import DATASETS
from fedge.data.partition import check_counts
from fedge.errors import ConfigError, suggestion, unknown

ROUNDS = 30
SPECIFIC = set[str]().union(*(entry.keys for entry in ALGORITHMS.values()))  # keys that only some algorithms read
CUSTOM = "custom"  # the data set or model was passed in from Python


class Config(BaseModel):
    """Every key of a run. The same names everywhere: command line, TOML file, Python, records."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    algorithm: str = Field(description="what to run")

    clients: int = Field(60, ge=1, description="clients in all")
    cells: int = Field(4, ge=1, description="edge servers, each with its own clients")
    rounds: int | None = Field(None, ge=1, description="global rounds; unless given, 30, or what a budget allows")
    local_steps: int = Field(5, ge=1, description="τ1, H: SGD steps between edge averages")
    edge_rounds: int = Field(4, ge=1, description="τ2, E/H: edge averages per global round")
    gossip: int | None = Field(None, ge=0, description="α: exchanges between edges per inter-edge step")
    graph: str | None = Field(
        None, description=f"between edges: {', '.join(GRAPHS)}, links such as '0-1 1-2', or a file of them"
    )
    density: float | None = Field(None, gt=0, le=1, description="link probability of graph=erdos_renyi")
    mixing: Literal["optimal", "mean"] | None = Field(
        None, description="best constant mixing matrix of the graph, or the mean of all edges"
    )
    out_bias: Literal["owner", "shared", "none", "author"] | None = Field(
        None, description="who trains the biases that belong to no unit of hist"
    )
    rescale: Literal["none", "mean"] | None = Field(
        None, description="evaluate hist's union as the sum or as the mean of its submodels"
    )
    cut: str | None = Field(
        None, description="last client-side stage of a split model; 0: none, top: all; unless given, the first"
    )
    server_copies: Literal["shared", "per_client"] | None = Field(
        None, description="hiersfl's server half: one per cell, or one per client, averaged every iteration"
    )
    messages: bool | None = Field(None, description="split steps by explicit messages: the same model, slower")
    participation: float = Field(1.0, gt=0, le=1, description="fraction of each cell's clients in an edge round")

    data: str = Field("fashion-mini", description="data set")
    partition: Literal["iid", "shards", "cell_iid", "one_class", "dirichlet", "drawn"] = Field(
        "shards", description="who gets which samples"
    )
    class_split: Literal["balanced", "equal_shards", "random_class"] = Field(
        "balanced", description="how partition=one_class deals the classes"
    )
    concentration: float = Field(0.5, gt=0, le=1e6, description="Dirichlet parameter of partition=dirichlet")
    client_samples: int = Field(10, ge=1, le=10**6, description="what each client draws with partition=drawn")
    assign: Literal["random", "edge_iid", "edge_niid"] = Field("random", description="which client joins which cell")
    sampler: Literal["epoch", "iid"] = Field("epoch", description="minibatches without or with replacement")

    model: Literal["mlp", "cnn", "resnet18", "custom"] = Field("mlp", description="what is trained")
    bn: Literal["avg_all", "local", "batch_stats", "groupnorm"] = Field(
        "avg_all", description="normalisation of resnet18"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout rate of mlp and cnn")

    optimizer: Literal["sgd", "adam", "adamw", "rmsprop", "adagrad", "custom"] = Field(
        "sgd", description="of each client"
    )
    lr: float = Field(0.05, gt=0, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of optimizer=sgd")
    weight_decay: float = Field(0.0, ge=0, description="weight decay")
    batch: int = Field(10, ge=1, description="samples per client and step")

    seed: int = Field(0, ge=0, lt=2**32, description="every draw comes from it")
    engine: Literal["vectorised", "reference"] = Field("vectorised", description="the fast one or the naive one")
    dtype: Literal["float32", "float64"] = Field("float32", description="of weights, updates and averages")
    compute: Literal["dtype", "bfloat16"] = Field(
        "dtype", description="of a client's passes through the model: as dtype, or less exact and on a GPU faster"
    )
    devices: int = Field(0, ge=0, le=100_000, description="over all processes; 0: all there are")
    chunk: int = Field(0, ge=0, description="clients side by side on a device; 0: chosen for the device")
    cycles_per_bit: float | None = Field(
        None, gt=0, description="work of a local step; unless given, 10,230 for resnet18, else 20"
    )
    cpu_hz: float = Field(2e9, gt=0, description="speed of a client's processor")
    edge_hz: float = Field(2e9, gt=0, description="speed of an edge's processor, for a split model's upper half")
    uplink_bps: float = Field(SHANNON, gt=0, description="client to edge: 1 MHz at 17 dB")
    edge_bps: float = Field(10 * SHANNON, gt=0, description="edge to neighbouring edge")
    cloud_bps: float = Field(SHANNON / 10, gt=0, description="edge or client to cloud")
    device_spread: float = Field(0.0, ge=0, description="log-normal spread of clients' processors")
    link_spread: float = Field(0.0, ge=0, description="log-normal spread of links")
    straggle: float = Field(0.0, ge=0, description="mean extra time of a client's work, drawn each edge round")
    downlink: bool = Field(False, description="whether downlinks take time")
    budget_seconds: float | None = Field(None, gt=0, description="stop before this many simulated seconds are exceeded")
    budget_bytes: float | None = Field(None, gt=0, description="stop before this many bytes, all tiers, are exceeded")

    train_eval: bool = Field(False, description="also evaluate on all training data: history gains global_loss")
    eval_every: int = Field(1, ge=1, description="rounds between evaluations")
    checkpoint_every: int = Field(5, ge=0, description="rounds between saved states; 0: never")

    def model_post_init(self, context: Any) -> None:
        check(self)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        """What depends on other keys: the algorithm's own defaults, the number of rounds, a graph read from a file."""
        entry = ALGORITHMS.get(str(values.get("algorithm")).lower())
        given = {key: value for key, value in values.items() if value is not None}
        for key, value in given.items():
            if (
                isinstance(value, bool)
                and key in cls.model_fields
                and bool not in flat(cls.model_fields[key].annotation)
            ):
                raise ConfigError(f"{key}={value} is not allowed; allowed: {allowed(key)}")
        for key in ("algorithm", "data", "model"):  # HierFAVG and MNIST are how people write them
            if isinstance(given.get(key), str):
                given[key] = given[key].lower()
        if isinstance(given.get("cut"), int):
            given["cut"] = str(given["cut"])
        if "graph" in given:
            given["graph"] = resolve_graph(given["graph"])
        if not {"rounds", "budget_seconds", "budget_bytes"} & given.keys():
            given["rounds"] = ROUNDS
        return (entry.keys if entry else {}) | given

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Config:
        """From plain values, with one sentence where they do not fit."""
        return cls(**values)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as problem:
            raise ConfigError(_sentence(problem.errors()[0])) from None


def foreign(algorithm: str) -> set[str]:
    """Keys that other algorithms read and this one does not."""
    return SPECIFIC - set(ALGORITHMS[algorithm].keys)


def check(c: Config) -> None:
    """Combinations that cannot be."""
    if c.algorithm not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", c.algorithm, ALGORITHMS))
    if c.data not in (*DATASETS, CUSTOM):
        raise ConfigError(unknown("data", c.data, DATASETS))
    if c.data in DATASETS:
        check_counts(c.partition, c.class_split, c.clients, DATASETS[c.data].samples[0], 10)
    if c.cells > c.clients:
        raise ConfigError(f"cells={c.cells} is more than clients={c.clients}; each cell needs at least one client")
    for key in sorted(foreign(c.algorithm)):
        if getattr(c, key) is not None:
            raise ConfigError(f"{key}={getattr(c, key)} has no meaning for {c.algorithm}; leave {key} out")
    if c.graph is not None:
        from fedge.core.graph import edge_graph

        edge_graph(c.graph, c.cells, c.density or 1.0, c.seed)
    wrong = [
        ("class_split", c.partition != "one_class", "partition=one_class"),
        ("concentration", c.partition != "dirichlet", "partition=dirichlet"),
        ("client_samples", c.partition != "drawn", "partition=drawn"),
        ("density", c.graph != "erdos_renyi", "graph=erdos_renyi"),
        ("bn", c.model != "resnet18", "model=resnet18"),
        ("dropout", c.model not in ("mlp", "cnn"), "model=mlp or model=cnn"),
        ("momentum", c.optimizer != "sgd", "optimizer=sgd"),
    ]
    for key, misplaced, needs in wrong:
        default = ALGORITHMS[c.algorithm].keys.get(key, Config.model_fields[key].default)
        if misplaced and getattr(c, key) != default:
            raise ConfigError(f"{key}={getattr(c, key)} is only for {needs}; leave {key} out")
    if c.partition == "cell_iid" and c.assign != "random":
        raise ConfigError(f"partition=cell_iid decides the cells itself; leave assign={c.assign} out")
    if c.engine == "reference" and (c.devices > 1 or c.chunk > 1):
        raise ConfigError("devices and chunk are only for engine=vectorised; leave them out")


def most_rounds(c: Config) -> int:
    """The global rounds whose iterations a signed 32-bit number can count."""
    return (2**31 - 1) // (c.local_steps * c.edge_rounds)


def flat(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type there is."""
    return get_args(annotation) or (annotation,)


def _sentence(error: ErrorDetails) -> str:
    key, given = str(error["loc"][0]), error["input"]
    if key not in Config.model_fields:
        return f"unknown key '{key}' (`fedge keys` lists them all){suggestion(key, Config.model_fields)}"
    if error["type"] == "missing":
        return f"{key} is missing; give one of: {', '.join(ALGORITHMS)}"
    near = suggestion(str(given), words(key)) if words(key) else ""
    return f"{key}={given} is not allowed; allowed: {allowed(key)}{near}"


def words(key: str) -> list[str]:
    """The values a key may have, where they are names."""
    listed = {"algorithm": list(ALGORITHMS), "data": list(DATASETS)}
    choices = [c for part in flat(Config.model_fields[key].annotation) for c in flat(part)]
    return listed.get(key) or [c for c in choices if isinstance(c, str) and c != CUSTOM]


def allowed(key: str) -> str:
    """What a key takes, for people: names, or a kind of number and its limits."""
    field = Config.model_fields[key]
    if words(key):
        return ", ".join(words(key))
    kind = str(field.annotation)
    noun = (
        "true or false"
        if "bool" in kind
        else "an integer"
        if "int" in kind
        else "a number"
        if "float" in kind
        else "a name"
    )
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [f"{sign} {getattr(m, name)}" for m in field.metadata for name, sign in signs.items() if hasattr(m, name)]
    return " and ".join([f"{noun} {limits[0]}", *limits[1:]]) if limits else noun


def resolve_graph(given: Any) -> str:
    """A graph as a name or written-out links, from a networkx graph or a file with one link per line as well."""
    nx = sys.modules.get("networkx")  # whoever has a graph of it has imported it
    if nx is not None and isinstance(given, nx.Graph):
        from fedge.core.graph import require_connected, write_links

        plain = nx.Graph(given.to_undirected())
        plain.remove_edges_from(list(nx.selfloop_edges(plain)))
        places = {node: d for d, node in enumerate(sorted(plain, key=lambda n: (str(type(n)), n)))}
        return write_links(require_connected(nx.relabel_nodes(plain, places))) or "path"  # one server has no links
    text, path = str(given), Path(str(given))
    if not path.is_file() and ("/" in text or path.suffix):
        raise ConfigError(f"graph={text} is no file; give one with a link such as '0 1' per line, or one of: "
                          f"{', '.join(GRAPHS)}")  # fmt: skip
    if text in GRAPHS or not path.is_file():
        return text
    lines = [line.split("#")[0].replace(",", " ").split()[:2] for line in path.read_text().splitlines()]
    return " ".join("-".join(line) for line in lines if line)


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as problem:
        raise ConfigError(f"cannot read the configuration {path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}") from None


def parse(pairs: list[str]) -> dict[str, str]:
    """`key=value` words of a command line."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            hint = f"; write {pair}=VALUE" if pair in Config.model_fields else suggestion(pair, Config.model_fields)
            hint = "; the algorithm goes first" if pair in ALGORITHMS else hint
            raise ConfigError(f"'{pair}' is not of the form key=value{hint}")
        if key in values:
            raise ConfigError(f"{key} is given twice; give it once")
        values[key] = value
    return values
