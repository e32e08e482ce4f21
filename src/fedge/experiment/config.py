"""The configuration of a run is typed, frozen, and refused at construction where it cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fedge import algorithms
from fedge.algorithms import ALGORITHMS
from fedge.core.declared import declared, validated
from fedge.core.objective import TASKS
from fedge.core.sampling import SAMPLERS
from fedge.cost.clock import SHANNON
from fedge.data import ASSIGNMENTS, CLASS_SPLITS, DATASETS, PARTITIONS
from fedge.data.own_data import DATA_FILES, TEST_FRACTION, is_own
from fedge.data.own_numbers import NUMBER_FILES, is_number_file
from fedge.engine import ENGINES
from fedge.errors import ConfigError, brief, suggestion
from fedge.experiment.checks import AS_NETWORK, COUNTABLE, CUSTOM, NATURAL, check
from fedge.experiment.files import resolve_graph
from fedge.experiment.other_names import key_suggestion
from fedge.experiment.target import part_target
from fedge.experiment.tasks import METRICS, read_metrics
from fedge.models import MODELS
from fedge.models import own as own_models
from fedge.plugins import is_name
from fedge.updates import UPDATES

ROUNDS = 30
NAMES: dict[str, Iterable[str]] = {  # keys whose values are names of things that stand elsewhere
    "task": (*TASKS, CUSTOM),
    "partition": (*PARTITIONS, NATURAL, CUSTOM),
    "class_split": CLASS_SPLITS,
    "assign": (*ASSIGNMENTS, AS_NETWORK, CUSTOM),
    "sampler": SAMPLERS,
    "model": (*MODELS, CUSTOM),
    "engine": ENGINES,
}
OWN = {  # keys whose values may also be names of what is the user's own
    "data": [*(f"FILE{kind}" for kind in DATA_FILES), "package.module:function"],
    "task": ["package.module:function"],
    "model": ["package.module:function"],
    "partition": [f"FILE{kind}" for kind in NUMBER_FILES],
    "assign": [f"FILE{kind}" for kind in NUMBER_FILES],
}
Count = Annotated[int, Field(ge=1, le=COUNTABLE)]
Speed = Annotated[float, Field(ge=1e-3, le=1e18)]  # simulated times stay far from what a number can hold
Spread = Annotated[float, Field(ge=0, le=10)]


class Config(BaseModel):
    """This holds every key of a run, by the same names everywhere: command line, TOML file, Python, records.

    The fields are what every run has; what its algorithm and updates declare besides is checked like these and kept
    in `declared`.
    """

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    algorithm: str = Field(description="what to run")

    clients: int = Field(60, ge=1, le=10**7, description="clients in all")
    cells: int = Field(4, ge=1, le=10**6, description="edge servers, each with its own clients")
    rounds: int | None = Field(
        None, ge=1, le=COUNTABLE, description="global rounds; unless given, 30, or what a budget allows"
    )
    local_steps: Count = Field(5, description="τ1, H: SGD steps between edge averages")
    edge_rounds: int = Field(4, ge=1, le=10**5, description="τ2, E/H: edge averages per global round")
    participation: float = Field(1.0, gt=0, le=1, description="fraction of each cell's clients in an edge round")

    data: str = Field("fashion-mini", description="data set: a known one, a file of your own or a function")
    target_column: str | None = Field(
        None, description="column of data=FILE.csv that is predicted; target=WORD says the same"
    )
    client_column: str | None = Field(
        None, description="column of data=FILE.csv that says who a sample comes from; then partition=natural"
    )
    test_fraction: float = Field(
        TEST_FRACTION, ge=1e-9, le=0.999, description="part held out where data of your own have no test part"
    )
    task: str = Field("classification", description="what is learnt: loss and metrics, of fedge or your own")
    partition: str = Field(
        "shards",
        description="who gets which samples; natural: as the data say; a file: a client for each sample; unless given, "
        "iid for tasks without classes",
    )
    class_split: str = Field("balanced", description="how partition=one_class deals the classes")
    concentration: float = Field(0.5, ge=1e-3, le=1e6, description="Dirichlet parameter of partition=dirichlet")
    client_samples: int = Field(10, ge=1, le=10**6, description="what each client draws with partition=drawn")
    assign: str = Field(
        "random", description="which client joins which cell; a file: a cell for each client; network: as network says"
    )
    sampler: str = Field("epoch", description="minibatches without or with replacement")

    model: str = Field("mlp", description="what is trained")
    bn: Literal["avg_all", "local", "batch_stats", "groupnorm"] = Field(
        "avg_all", description="normalisation of resnet8 and resnet18"
    )
    dropout: float = Field(0.0, ge=0, le=0.99, description="dropout rate of mlp and cnn")
    init: str | None = Field(
        None, examples=["FILE.safetensors"], description="weights to start from, by their names; unless given, drawn"
    )

    optimizer: Literal["sgd", "adam", "adamw", "rmsprop", "adagrad", "custom"] = Field(
        "sgd", description="of each client"
    )
    lr: float = Field(0.05, ge=1e-30, le=1e30, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of optimizer=sgd")
    weight_decay: float = Field(0.0, ge=0, le=1e6, description="weight decay")
    batch: int = Field(10, ge=1, le=10**6, description="samples per client and step")

    seed: int = Field(0, ge=0, lt=2**32, description="every draw comes from it")
    engine: str = Field("vectorised", description="the fast one or the naive one")
    dtype: Literal["float32", "float64"] = Field("float32", description="of weights, updates and averages")
    compute: Literal["dtype", "bfloat16"] = Field(
        "dtype", description="of a client's passes through the model: as dtype, or less exact and on a GPU faster"
    )
    devices: int = Field(0, ge=0, le=100_000, description="over all processes; 0: all there are")
    chunk: int = Field(0, ge=0, le=10**7, description="clients side by side on a device; 0: chosen for the device")
    network: str | None = Field(
        None,
        examples=["FILE.toml", "a folder of .csv files"],
        description="clients, edges and links as measured; says clients, cells, assign and all rates",
    )
    cycles_per_bit: float | None = Field(
        None,
        ge=1e-9,
        le=1e12,
        description="work of a step; unless given, 10,230 for resnet18, 230 for resnet8, else 20",
    )
    cpu_hz: Speed = Field(2e9, description="speed of a client's processor")
    edge_hz: Speed = Field(2e9, description="speed of an edge's processor, for a split model's upper half")
    uplink_bps: Speed = Field(SHANNON, description="client to edge: 1 MHz at 17 dB")
    edge_bps: Speed = Field(10 * SHANNON, description="edge to neighbouring edge")
    cloud_bps: Speed = Field(SHANNON / 10, description="edge or client to cloud")
    device_spread: Spread = Field(0.0, description="log-normal spread of clients' processors")
    link_spread: Spread = Field(0.0, description="log-normal spread of links")
    straggle: float = Field(0.0, ge=0, le=1e6, description="mean extra time of a client's work, drawn each edge round")
    downlink: bool = Field(False, description="whether downlinks take time; unless given, true with a network")
    billed: Literal["sent", "trainable"] = Field(
        "sent", description="what transfers take time for: all that is sent, or trainable parameters only"
    )
    budget_seconds: float | None = Field(
        None, gt=0, le=1e18, description="stop before this many simulated seconds are exceeded"
    )
    budget_bytes: float | None = Field(
        None, gt=0, le=1e24, description="stop before this many bytes, all tiers, are exceeded"
    )
    target: float | None = Field(None, ge=-1e30, le=1e30, description="stop once a metric is as good as this")
    target_metric: str | None = Field(
        None,
        examples=["accuracy", "loss", "train_loss"],
        description="column of the record that target is about; unless given, the main metric: accuracy",
    )
    target_mean: Count = Field(1, description="evaluations whose mean must be as good as target")

    train_eval: bool = Field(
        False, description="also evaluate on all training data: history gains global_loss and objective"
    )
    metrics: str = Field(
        "",
        description="also find: cells, clients (the tested model on the training samples of each; the worst tenth of "
        "clients), f1 (macro-F1 on the test set)",
    )
    eval_every: Count = Field(1, description="rounds between evaluations")
    checkpoint_every: int = Field(5, ge=0, le=COUNTABLE, description="rounds between saved states; 0: never")

    def __init__(self, /, **values: Any) -> None:
        for key, name_of in (("algorithm", algorithms.name_of), ("model", own_models.name_of)):
            if callable(own := values.get(key)):
                values[key] = name_of(own)
        require_known(values, values.get("algorithm"), values.get("model"))
        try:
            super().__init__(**values)
        except ValidationError as problem:
            raise ConfigError(_sentence(problem.errors()[0])) from None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Config:
        """Make a configuration of plain values, or say in one sentence where they do not fit."""
        if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
            raise ConfigError("a configuration is a table of keys and values; `fedge keys` lists the keys")
        return cls(**values)

    @property
    def declared(self) -> dict[str, Any]:
        """Return the values of the keys that the algorithm and the updates declare."""
        return self.__pydantic_extra__ or {}

    def of_own(self, function: Any) -> dict[str, Any]:
        """Return the values of the keys that this function declares."""
        return {key: self.declared[key] for key in declared(function)}

    def model_post_init(self, context: Any) -> None:
        check(self)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Fill in what depends on other keys: the algorithm's own defaults, the number of rounds, a graph's links."""
        given = part_target({key: value for key, value in values.items() if value is not None})
        for key in ("algorithm", "data", "model"):  # HierFAVG and MNIST are how people write them
            if isinstance(given.get(key), str) and not is_own(given[key]):
                given[key] = given[key].lower()
        for key, value in given.items():
            if isinstance(value, bool) and key in cls.model_fields and "bool" not in str(field(key).annotation):
                raise ConfigError(f"{key}={value} is not allowed; allowed: {allowed(key)}")
        if given.get("client_column") is not None:
            given.setdefault("partition", NATURAL)
        if isinstance(given.get("task"), str) and not is_name(given["task"]):
            given["task"] = given["task"].lower()
        if given.get("task") in TASKS[1:]:
            given.setdefault("partition", "iid")
        if "metrics" in given:
            given["metrics"] = read_metrics(given["metrics"])
        if isinstance(given.get("init"), Path):
            given["init"] = str(given["init"])
        if "graph" in given:
            given["graph"] = resolve_graph(given["graph"])
        if not {"rounds", "budget_seconds", "budget_bytes"} & given.keys():
            given["rounds"] = ROUNDS
        if not isinstance(name := given.get("algorithm"), str):
            return given
        entry, model = algorithms.algorithm(name), given.get("model")
        fields = declared_by(name, model)
        for key in given.keys() - cls.model_fields.keys() - fields.keys():
            whom = f"model={brief(model or 'mlp')}" if key in own_model_fields() else name
            raise ConfigError(f"{key}={brief(given[key])} has no meaning for {whom}; leave {key} out")
        if "network" in given:
            given = {"assign": AS_NETWORK, "downlink": True} | given
        defaults = {key: field.default for key, field in fields.items()} | entry.defaults
        if "network" in given and "graph" in fields:
            defaults["graph"] = AS_NETWORK
        plain = {key: value for key, value in given.items() if key not in fields}
        return plain | {  # in one order, however they were given
            key: _checked(key, given[key], fields[key]) if key in given else defaults[key] for key in fields
        }

    @field_validator(*NAMES)
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        key = info.field_name or ""
        own = is_name(value) if key in ("task", "model") else key in OWN and is_number_file(value)
        if value not in NAMES[key] and not own:
            raise ValueError
        return value


def require_known(keys: Iterable[str], algorithm: Any = None, model: Any = None) -> None:
    """Refuse a key that no run has."""
    found = isinstance(algorithm, str) and (is_name(algorithm) or algorithm in algorithms.installed())
    own = declared_by(algorithm) if found else {}
    known = all_fields() | own | own_models.keys_of(model)
    for key in keys:
        if key not in known:
            near = key_suggestion(key, known)
            raise ConfigError(f"unknown key '{brief(key)}' (`fedge keys` lists them all){near}")


def declared_by(algorithm: str, model: Any = None) -> dict[str, FieldInfo]:
    """Return the keys that an algorithm, all updates and a model of the user's own declare."""
    every_run = Config.model_fields.keys() | update_fields().keys()
    found, of_model = algorithms.algorithm(algorithm).keys, own_models.keys_of(model)
    for name, own, taken in ((algorithm, found, every_run), (model, of_model, every_run | found.keys())):
        if both := own.keys() & taken:
            whose = "every run" if both & every_run else algorithm
            raise ConfigError(f"key '{min(both)}' of {name} is a key of {whose} already; give it another name")
    return found | update_fields() | of_model


@cache
def update_fields() -> dict[str, FieldInfo]:
    """Return the keys that updates declare, which every algorithm has."""
    return {key: field for update in UPDATES for key, field in declared(update).items()}


def all_fields() -> dict[str, FieldInfo]:
    """Return every key that a run of a known algorithm may have."""
    return own_model_fields() | Config.model_fields | _of_algorithms() | update_fields()


def own_model_fields() -> dict[str, FieldInfo]:
    """Return the keys of all models of the user's own that were asked for."""
    return {key: field for name in own_models.OWN for key, field in own_models.keys_of(name).items()}


def _of_algorithms() -> dict[str, FieldInfo]:
    known = [*ALGORITHMS.values(), *algorithms.OWN.values()]
    return {key: field for entry in known for key, field in entry.keys.items()}


def foreign(algorithm: str) -> set[str]:
    """Name the keys that other algorithms declare and this one does not."""
    return _of_algorithms().keys() - declared_by(algorithm).keys()


def _checked(key: str, value: Any, field: FieldInfo) -> Any:
    """Return the value of a declared key as what it takes."""
    try:
        if isinstance(value, bool) and "bool" not in str(field.annotation):
            raise ConfigError(f"{key}={value} is not allowed; allowed: {allowed(key)}")
        return validated(field, value)
    except ValidationError as problem:
        raise ConfigError(_sentence(problem.errors()[0], key)) from None


def _sentence(error: ErrorDetails, key: str | None = None) -> str:
    key, given = key or str(error["loc"][0]), brief(error["input"])
    if error["type"] == "missing":
        return f"{key} is missing; give one of: {', '.join(ALGORITHMS)}"
    near = suggestion(given, words(key)) if words(key) else ""
    return f"{key}={given} is not allowed; allowed: {allowed(key)}{near}"


def field(key: str) -> FieldInfo:
    return all_fields()[key]


def words(key: str) -> list[str]:
    """List the values a key may have, where they are names."""
    annotation = field(key).annotation
    choices = [c for part in (get_args(annotation) or (annotation,)) for c in (get_args(part) or (part,))]
    names: dict[str, Iterable[Any]] = {"algorithm": ALGORITHMS, "data": DATASETS, **NAMES}
    return [c for c in names.get(key, choices) if isinstance(c, str) and c != CUSTOM]


def allowed(key: str) -> str:
    """Say what a key takes: names, or a kind of number and its limits."""
    if key == "metrics":
        return METRICS
    if words(key):
        return ", ".join([*words(key), *OWN.get(key, [])])
    if examples := field(key).examples:
        return f"{', '.join(map(str, examples))}, …"
    kind = str(field(key).annotation)
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
    found = [(sign, getattr(limit, name, None)) for limit in field(key).metadata for name, sign in signs.items()]
    limits = [f"{sign} {number:.15g}" for sign, number in found if number is not None]
    return " and ".join([f"{noun} {limits[0]}", *limits[1:]]) if limits else noun


def parse(pairs: list[str]) -> dict[str, str]:
    """Read the `key=value` words of a command line."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            known = all_fields()
            hint = f"; write {pair}=VALUE" if pair in known else key_suggestion(pair, known)
            hint = "; the algorithm goes first" if pair in ALGORITHMS else hint
            raise ConfigError(f"'{brief(pair)}' is not of the form key=value{hint}")
        if key in values:
            raise ConfigError(f"{brief(key)} is given twice; give it once")
        values[key] = value
    return values
