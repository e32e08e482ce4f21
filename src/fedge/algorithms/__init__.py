"""Each paper has one file. Algorithms import neither each other nor an engine.

What is registered here has a name of one word; an algorithm of the user's own is named `package.module:function`, or by
a package that it is installed with (entry points of the group `fedge.algorithms`). All are found by `algorithm`. The
names are here at once; a file is imported when its algorithm is asked for, since JAX takes a while.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fedge import plugins
from fedge.errors import ConfigError, unknown

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from fedge.core.contract import Factory

GROUP = "fedge.algorithms"
TAKES = ("knobs", "topology", "model")


class Entry(NamedTuple):
    where: str | Callable[..., Any]  # file:function in this room, or a function of the user's own
    form_of: str | None = None  # another algorithm of which this is a form: left out of a comparison of all
    defaults: dict[str, Any] = {}  # of keys that updates declare  # noqa: RUF012

    @property
    def factory(self) -> Callable[..., Any]:
        """Return the function that makes the algorithm's value."""
        if not isinstance(self.where, str):
            return self.where
        file, _, function = self.where.partition(":")
        found: Callable[..., Any] = getattr(import_module(f"{__name__}.{file}"), function)
        return found

    @property
    def keys(self) -> dict[str, FieldInfo]:
        """Return the keys that only this algorithm declares."""
        from fedge.core.declared import declared

        return declared(self.factory)

    @property
    def make(self) -> Factory:
        return cast("Factory", self.factory)


ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry("fedavg:fedavg"),
    "hierfavg": Entry("hierfavg:hierfavg"),
    "hfedavg": Entry("hierfavg:hfedavg", form_of="hierfavg"),
    "hist": Entry("hist:hist"),
    "hiersfl": Entry("hiersfl:hiersfl"),
    "hiersfl_v2": Entry("hiersfl:hiersfl_v2", form_of="hiersfl"),
    "sdfeel": Entry("sdfeel:sdfeel"),
    "fedprox": Entry("fedavg:fedavg", "fedavg", {"prox": 0.01}),
    "fedavgm": Entry("fedavg:fedavg", "fedavg", {"server": "momentum"}),
    "fedadam": Entry("fedavg:fedavg", "fedavg", {"server": "adam"}),
    "scaffold": Entry("fedavg:fedavg", "fedavg", {"correction": "scaffold"}),
    "mtgc": Entry("hierfavg:hierfavg", "hierfavg", {"correction": "mtgc"}),
}


def name_of(function: Callable[..., Any]) -> str:
    """Name an algorithm that was passed in from Python as a function, and remember it by that name."""
    name = plugins.name_of("algorithm", function)
    if name not in OWN or OWN[name].where is not function:
        plugins.require_takes("algorithm", name, function, TAKES)
        OWN[name] = _checked(Entry(function))
    return name


def algorithm(name: str) -> Entry:
    """Find an algorithm by its name, wherever it stands."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    name = installed().get(name, name)
    if plugins.is_name(name):
        if name not in OWN:
            OWN[name] = _checked(Entry(plugins.find("algorithm", name, TAKES)))
        return OWN[name]
    raise ConfigError(unknown("algorithm", name, [*ALGORITHMS, *installed()]) + "; your own: package.module:function")


@cache
def installed() -> dict[str, str]:
    """Return the algorithms that other installed packages bring: name → package.module:function."""
    return {point.name: point.value for point in entry_points(group=GROUP) if plugins.is_name(point.value)}


def _checked(entry: Entry) -> Entry:
    """Refuse keys that are declared badly as soon as they are met."""
    _ = entry.keys
    return entry


OWN: dict[str, Entry] = {}  # the user's, once they were asked for
