"""Make one run, from keys to a result."""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jax

from fedge.core.objective import Objective
from fedge.data import Dataset
from fedge.errors import ConfigError, RunError
from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.experiment.optimisers import Optimiser
from fedge.models import Model
from fedge.runner import device, files, identity, record, sources
from fedge.runner.cache import ProgramCache
from fedge.runner.listener import Audience, Listener
from fedge.runner.prepare import Given, Keys, Preparation, part_model, ready
from fedge.runner.record import Silent
from fedge.runner.result import Result
from fedge.runner.signals import StopRequest
from fedge.runner.training import train

log = logging.getLogger(__name__)


def run(
    config: Config | Keys | None = None, *, out: str | Path | None = None, resume: str | Path | None = None,
    dataset: Dataset | None = None, model: Model | str | Callable[..., Any] | None = None,
    optimiser: Optimiser | None = None, objective: Objective | None = None,
    listener: Listener | Sequence[Listener] | None = None, cache: ProgramCache | None = None,
    hosts: str | None = None, stop: StopRequest | None = None, **keys: Any,
) -> Result:  # fmt: skip
    """Run one experiment. Keys are those of the command line: `fedge.run(algorithm="hierfavg", clients=20)`.

    `dataset`, `model`, `optimiser` (learning rate → optax transformation) and `objective` (loss and metrics) may be
    objects of your own in place of the configured ones; `model` and `algorithm` may also be functions of your own, or
    their names; `partition` may be an array with a client for each training
    sample, `assign` one with a cell for each client. `resume` continues the run in that folder, with more `rounds` or a
    larger budget if given. Runs with one `cache` share compiled programs. `hosts` is for one run by several processes
    (docs/hosts.md); the first of them writes. A run that diverges raises `DivergenceError`, which holds the result so
    far.
    """
    began = time.perf_counter()
    model, keys = part_model(model, keys)
    plain = config.model_dump(exclude_unset=True) if isinstance(config, Config) else dict(config or {})
    given, plain = Given(dataset, model, optimiser, objective).take_arrays(plain | keys)
    audience = Audience(listener)
    if resume is not None:
        if config is not None or out is not None:
            raise ConfigError("a resumed run keeps its own configuration and folder; give resume alone")
        return _resume(Path(resume), plain, given, audience, cache, hosts, stop, began)
    chosen = given.resolve(plain)
    with ready(chosen, chosen.devices, hosts):
        job = Preparation.of(chosen, given, cache, {"devices": chosen.devices, "chunk": chosen.chunk})
        if not device.leads():
            return train(job, Silent(), Path(), Audience(None), None, began)
        folder = Path(out) if out is not None else default_folder(chosen.algorithm)
        record.claim(folder)
        with files.locked(folder):
            record.claim(folder)  # another may have begun a run there a moment ago
            facts = {"layout": job.engine.layout} | mixing(job.made) | class_names(job.made)
            kept = record.begin(folder, job.made.config.model_dump(), job.objects, **facts)
            return train(job, kept, folder, audience, stop, began)


def _resume(
    folder: Path, keys: Keys, given: Given, audience: Audience, cache: ProgramCache | None, hosts: str | None,
    stop: StopRequest | None, began: float,
) -> Result:  # fmt: skip
    if unknown := [key for key in keys if key not in (*identity.LENGTH, *identity.LAYOUT)]:
        raise ConfigError(
            f"a resumed run keeps its own {unknown[0]}; only {', '.join((*identity.LENGTH, *identity.LAYOUT))} may be "
            "given with resume"
        )
    if not folder.is_dir():
        raise RunError(f"{folder} does not hold a run; give the folder of one")
    with contextlib.ExitStack() as stack:
        if hosts is None:
            stack.enter_context(files.locked(folder))
        kept = record.reopen(folder)
        sources.require(folder, kept.about["objects"])
        longer = {key: value for key, value in keys.items() if key in identity.LENGTH}
        chosen = Config.of(kept.config | longer)
        layout = {key: kept.about["layout"].get(key, 0) for key in identity.LAYOUT}
        layout |= {key: getattr(Config.of(kept.config | dict(keys)), key) for key in identity.LAYOUT if key in keys}
        elsewhere = {} if "devices" in keys else {"devices": 0, "chunk": 0}  # where there are not as many devices
        if hosts is None and layout["devices"] > max(device.MOST, device.cores()):
            layout |= elsewhere
        stack.enter_context(ready(chosen, layout["devices"], hosts))
        if layout["devices"] > len(jax.devices()):
            layout |= elsewhere
        job = Preparation.of(chosen, given, cache, layout)
        if not device.leads():
            return train(job, Silent(kept), Path(), Audience(None), None, began)
        if hosts is not None:
            stack.enter_context(files.locked(folder))
        changed = record.changes(kept, job.objects)
        if job.engine.layout != kept.about["layout"]:
            changed.append("layout (devices, chunk)")
        if changed:
            kept.go_on_otherwise(changed, job.engine.layout)
            much = "" if "code" in changed else " in the last bits"
            log.warning("%s differ from when %s was begun: results may differ%s", ", ".join(changed), folder, much)
        return train(job, kept, folder, audience, stop, began)


def default_folder(name: str) -> Path:
    """Make a folder in runs/ that nobody else has: processes that start in the same second get one each."""
    plain = re.sub(r"[^\w.-]", "-", name)  # of package.module:function too
    base = Path("runs") / f"{plain}-{datetime.now():%Y%m%d-%H%M%S}"
    try:
        files.make_folder(base.parent)
        for number in itertools.count(1):
            folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                files.sync_folder(base.parent)
                break
    except OSError as problem:
        raise RunError(f"cannot write to {base.parent}: {problem.strerror}; choose another place with --out") from None
    return folder


def class_names(made: Experiment) -> dict[str, Any]:
    """Name the classes in the order of the model's outputs, where they have names."""
    return {"class_names": list(made.dataset.class_names)} if made.dataset.class_names else {}


def mixing(made: Experiment) -> dict[str, Any]:
    """Say what gossip does to a disagreement, where edges gossip."""
    gossip = made.job.algorithm.gossip
    if gossip is None:
        return {}
    smallest = float(gossip.mixing.min())
    return {"zeta": gossip.zeta, "zeta_to_alpha": gossip.zeta**gossip.steps, "smallest_mixing_entry": smallest}
