"""This says of each key of a run who reads it, what it takes, what it means and what it is unless given."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fedge import algorithms
from fedge.core.declared import declared
from fedge.errors import ConfigError, brief
from fedge.experiment.config import Config, all_fields, allowed, declared_by
from fedge.experiment.other_names import key_suggestion
from fedge.models import own as own_models
from fedge.plugins import is_name
from fedge.updates import UPDATES

EVERY_RUN = "every run"
TYPES = {bool: "true or false", int: "integer", float: "number"}


@dataclass(frozen=True)
class Key:
    name: str
    read_by: str  # every run, the algorithms that declare it, or the file of updates that does
    type: str
    takes: str
    meaning: str
    default: Any
    defaults: dict[str, Any] = field(default_factory=dict)  # of the algorithms whose own default is another

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def every_key() -> list[Key]:
    """Describe each key of every known algorithm; those with the same readers stand together."""
    found = [describe(name) for name in all_fields()]
    readers = list(dict.fromkeys(key.read_by for key in found))
    return sorted(found, key=lambda key: readers.index(key.read_by))


def keys_of(algorithm: str) -> list[Key]:
    """Describe what a run of this algorithm reads, its own keys first, with its own defaults."""
    algorithm = algorithm if is_name(algorithm) else algorithm.lower()
    entry, fields = algorithms.algorithm(algorithm), declared_by(algorithm)
    of_run = [name for name in Config.model_fields if name != "algorithm"]
    found = []
    for name in [*fields, *of_run]:
        info = fields.get(name) or Config.model_fields[name]
        read_by = algorithm if name in entry.keys else _readers(name)
        found.append(_key(name, info, read_by, entry.defaults.get(name, _default(info))))
    return found


def keys_of_model(name: str) -> list[Key]:
    """Describe the keys that a model of the user's own declares."""
    fields = own_models.keys_of(name)
    if not fields:
        said = "declares no keys" if is_name(name) else "is no model of your own, package.module:function"
        raise ConfigError(f"model={brief(name)} {said}; `fedge keys` lists what every run takes")
    return [_key(key, info, name, _default(info)) for key, info in fields.items()]


def describe(name: str) -> Key:
    """Describe a key, whoever reads it."""
    if name not in all_fields():
        near = key_suggestion(name, [*all_fields(), *algorithms.ALGORITHMS])
        raise ConfigError(f"'{brief(name)}' is no key and no algorithm; `fedge keys` lists all keys{near}")
    info = all_fields()[name]
    own = {}
    for algorithm, entry in algorithms.ALGORITHMS.items():
        its = entry.defaults.get(name, _default(entry.keys.get(name, info)))
        if its != _default(info):
            own[algorithm] = its
    return _key(name, info, _readers(name), _default(info), own)


def is_algorithm(word: str) -> bool:
    return is_name(word) or word.lower() in algorithms.ALGORITHMS or word in algorithms.installed()


def _readers(name: str) -> str:
    if name in Config.model_fields:
        return EVERY_RUN
    known = algorithms.ALGORITHMS | algorithms.OWN
    if own := [algorithm for algorithm, entry in known.items() if name in entry.keys]:
        return ", ".join(own)
    if models := [model for model in own_models.OWN if name in own_models.keys_of(model)]:
        return ", ".join(models)
    update = next(update for update in UPDATES if name in declared(update))
    return f"any algorithm's updates ({update.__module__.rpartition('.')[2]})"


def _key(name: str, info: FieldInfo, read_by: str, default: Any, defaults: dict[str, Any] | None = None) -> Key:
    takes = allowed(name) if name in all_fields() else _type(info.annotation)
    return Key(name, read_by, _type(info.annotation), takes, info.description or "", default, defaults or {})


def _default(info: FieldInfo) -> Any:
    return None if info.is_required() else info.default


def _type(annotation: Any) -> str:
    """Name the kind of value that a key has; None beside it means that it may be left out."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return TYPES.get(annotation, "text")
