"""Turn a Flax NNX module into what the rest of fedge uses: pure functions over a flat dictionary of weights.

A module may say two things about itself:

- which axes of a parameter are *units* that HIST may deal out, by the metadata entry `units`, one name or None per
  axis: `nnx.Linear(784, 300, kernel_metadata={"units": (None, "hidden")}, bias_metadata={"units": ("hidden",)}, …)`;
- in which *stages* it computes, where HierSFL may cut: an attribute `stages` (stage name → the prefixes of the
  parameter paths it owns, in order) and a method `stage(name, x)`; `__call__` then is their composition.

A module that says neither trains under every algorithm that needs neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from fedge.core.keys import fold
from fedge.core.tree import Weights
from fedge.errors import ConfigError
from fedge.models.layers import one_kernel

Statistics = Literal["avg_all", "local", "batch_stats"]
WHOLE = "model"  # the only stage of a module that names none


@dataclass(frozen=True, eq=False)
class Model:
    """`weights` everywhere is a flat dictionary: trainable parameters, and running statistics where they are averaged.

    `statistics` says what happens to BatchNorm's running mean and variance:
    - avg_all: they travel and are averaged like parameters;
    - local: they never leave the client; before an evaluation they are estimated anew from training images;
    - batch_stats: there are none; an evaluation batch is normalised by its own statistics.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    graph: Any  # nnx.GraphDef is generic in a way that adds nothing here
    template: dict[str, Any]  # path → abstract variable, everything the module holds
    trainable: frozenset[str]
    axes: dict[str, tuple[str | None, ...]]
    stage_paths: Mapping[str, tuple[str, ...]]
    build: Callable[[nnx.Rngs], nnx.Module]
    constants: Weights  # variables that are neither trained nor statistics, as the module was built with them
    statistics: Statistics = "avg_all"
    compute: Any = None  # the dtype of the arithmetic inside, where it is not the weights' own

    @cached_property
    def initialise(self) -> Callable[[Array], Weights]:
        """Compile key → initial weights."""
        return jax.jit(self._initial)

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(self.stage_paths)

    @property
    def parameters(self) -> int:
        return sum(self.template[path].size for path in self.trainable)

    @property
    def variances(self) -> frozenset[str]:
        """List the running variances among what travels: they must never be mixed with negative weights."""
        kept = {p for p in self.travelling - self.trainable if p.split("/")[-1] == "var"}
        return frozenset(kept)

    @property
    def has_statistics(self) -> bool:
        return any(issubclass(v.type, nnx.BatchStat) for v in self.template.values())

    @property
    def evaluates_batches(self) -> bool:
        """Say whether the outputs for an image depend on the other images it is evaluated with."""
        return self.has_statistics and self.statistics == "batch_stats"

    @property
    def windows(self) -> bool:
        """Say whether there are convolutions in it."""
        return any(len(v.shape) == 4 for v in self.template.values())

    def stage_of(self, path: str) -> str:
        """Return the stage that owns a parameter."""
        for stage, prefixes in self.stage_paths.items():
            if any(path == p or path.startswith(p + "/") for p in prefixes):
                return stage
        return WHOLE

    def _initial(self, key: Array) -> Weights:
        held = flatten(nnx.state(self.build(nnx.Rngs(key))))
        return {path: held[path][...] for path in sorted(self.travelling)}

    @property
    def travelling(self) -> frozenset[str]:
        """List the paths that are kept, sent and averaged."""
        if self.statistics == "avg_all":
            return self.trainable | {p for p, v in self.template.items() if issubclass(v.type, nnx.BatchStat)}
        return self.trainable

    def __call__(
        self, weights: Weights, x: Array, *, train: bool, key: Array, stages: tuple[str, ...] | None = None
    ) -> tuple[Array, Weights]:
        """Return the outputs of the given stages (unless said otherwise, all) and the statistics that travel.

        Both have the dtype of the weights, whatever `compute` is. `weights` needs to hold only the paths of those
        stages.
        """
        from_batch = train or self.statistics == "batch_stats"
        dtype = jnp.result_type(*weights.values()) if weights else x.dtype
        if self.compute is not None:
            x = x.astype(self.compute) if jnp.issubdtype(x.dtype, jnp.floating) else x
            weights = {p: w.astype(self.compute) if p in self.trainable else w for p, w in weights.items()}
        module = self._module(weights, key)
        module.set_attributes(deterministic=not train, use_running_average=not from_batch, raise_if_not_found=False)
        if self.compute is not None:  # or layers would promote what they are given to the widest of what they hold
            module.set_attributes(dtype=self.compute, raise_if_not_found=False)
        with nullcontext() if train else one_kernel():
            for stage in self.stages if stages is None else stages:
                x = module(x) if stage == WHOLE else module.stage(stage, x)
        x = x if self.compute is None else x.astype(dtype)
        if not train or self.statistics != "avg_all":
            return x, {}
        return x, {p: v[...] for p, v in flatten(nnx.state(module, nnx.BatchStat)).items() if p in weights}

    def calibrated(self, weights: Weights, x: Array) -> Weights:
        """Return the weights with statistics averaged over batches [n, B, …] of images."""
        return weights | self._estimate(weights, x)

    @cached_property
    def _estimate(self) -> Callable[[Weights, Array], Weights]:
        def batch(weights: Weights, x: Array) -> Weights:
            module = self._module(weights, jax.random.key(0))
            module.set_attributes(deterministic=True, use_running_average=False, momentum=0.0, raise_if_not_found=False)
            module(x)
            return {p: v[...] for p, v in flatten(nnx.state(module, nnx.BatchStat)).items()}

        def mean(weights: Weights, x: Array) -> Weights:
            return {p: v.mean(0) for p, v in jax.lax.map(lambda b: batch(weights, b), x).items()}

        return jax.jit(mean)

    def _module(self, weights: Weights, key: Array) -> Any:
        """Make the module with these weights; what they lack (random streams, unsent statistics) is filled in."""
        dtype = jnp.result_type(jnp.float32, *weights.values())
        leaves: dict[Any, Any] = {}
        for number, (path, variable) in enumerate(self.template.items()):
            value = weights.get(path)
            if value is None:
                value = self.constants.get(path)
            if value is None:
                like = weights.get(_scale_of(path))  # statistics of a submodel are as many as its channels
                value = _filler(variable, variable.shape if like is None else like.shape, fold(key, number), dtype)
            leaves[tuple(_part(p) for p in path.split("/"))] = variable.replace(value)
        return nnx.merge(self.graph, nnx.from_flat_state(leaves))


def from_nnx(
    build: Callable[[nnx.Rngs], nnx.Module],
    *,
    input_shape: tuple[int, ...],
    classes: int,
    name: str = "custom",
    statistics: Statistics = "avg_all",
) -> Model:
    """Wrap any NNX module factory. The module maps images [B, *input_shape] to logits [B, classes]."""
    call = _by_keyword(build)
    abstract = nnx.eval_shape(lambda: call(nnx.Rngs(0)))
    graph, state = nnx.split(abstract)
    template = flatten(state)
    for path, leaf in template.items():
        if not isinstance(leaf, nnx.Variable):
            raise ConfigError(f"'{path}' of the model is a plain array; make it an nnx.Param if it is trained, "
                              "or an nnx.Variable if it is not")  # fmt: skip
    fixed = [p for p, v in template.items() if not issubclass(v.type, (nnx.Param, nnx.BatchStat, nnx.RngState))]
    built = flatten(nnx.state(call(nnx.Rngs(0)))) if fixed else {}
    axes = {path: v.get_metadata().get("units") for path, v in template.items()}
    for path, v in template.items():  # nnx.BatchNorm has no metadata for its statistics: they go with its scale
        scale = _scale_of(path)
        if issubclass(v.type, nnx.BatchStat) and scale in axes and template[scale].shape == v.shape:
            axes[path] = axes[path] or axes[scale]
    for path, units in axes.items():
        if units is not None and len(units) != len(template[path].shape):
            raise ConfigError(
                f"parameter '{path}' has {len(template[path].shape)} axes but its units metadata names {len(units)}"
            )
    return Model(
        name=name,
        input_shape=input_shape,
        classes=classes,
        graph=graph,
        template=template,
        trainable=frozenset(p for p, v in template.items() if issubclass(v.type, nnx.Param)),
        axes={path: tuple(units) for path, units in axes.items() if units is not None},
        stage_paths=dict(getattr(abstract, "stages", {WHOLE: ("",)})),
        build=call,
        constants={path: built[path][...] for path in fixed},
        statistics=statistics,
    )


def _by_keyword(build: Callable[..., nnx.Module]) -> Callable[[nnx.Rngs], nnx.Module]:
    """Factories take their random streams as `rngs`, by position or by keyword only."""
    takes = inspect.signature(build.__init__ if inspect.isclass(build) else build).parameters
    return (lambda rngs: build(rngs=rngs)) if "rngs" in takes else build


def flatten(state: Any) -> dict[str, Any]:
    return {"/".join(map(str, path)): variable for path, variable in nnx.to_flat_state(state)}


def _part(name: str) -> str | int:
    return int(name) if name.isdigit() else name


def _scale_of(path: str) -> str:
    return "/".join([*path.split("/")[:-1], "scale"])


def _filler(variable: Any, shape: tuple[int, ...], key: Array, dtype: jnp.dtype) -> Array:
    if issubclass(variable.type, nnx.RngKey):
        return key
    if issubclass(variable.type, nnx.RngCount):
        return jnp.zeros(variable.shape, variable.dtype)
    if issubclass(variable.type, nnx.BatchStat):
        return jnp.zeros(shape, dtype)  # written before it is read: see `statistics`
    return jnp.full(variable.shape, jnp.nan, variable.dtype)  # the other half of a split model: not to be read
