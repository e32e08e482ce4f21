"""Results stay what they were: a small run of each algorithm, recorded, and made again bit for bit.

Bits depend on the processor and on what compiles for it, so a record is kept for each pair (`recorded_runs.json`); on
a machine that has none, numbers must agree with every record to 1e-4. To record this machine:
`python -m tests.test_recorded_runs`.
"""

import hashlib
import json
import os
from functools import partialmethod
from pathlib import Path

import jax
import numpy as np
import pytest

import fedge
from fedge.engine.compiled import CompiledPrograms
from tests.helpers import PLAIN

RECORD = Path(__file__).with_name("recorded_runs.json")
KEYS = {"clients": 8, "cells": 4, "local_steps": 3, "edge_rounds": 2, "rounds": 2, "batch": 8, "seed": 1}
RUNS = {name: {"algorithm": name} for name in PLAIN} | {
    "hierfavg cnn": {"algorithm": "hierfavg", "model": "cnn", "clients": 6, "cells": 2, "participation": 0.7},
    "hiersfl cnn": {"algorithm": "hiersfl", "model": "cnn", "clients": 6, "cells": 2, "cut": "pool2"},
    "hist uneven": {"algorithm": "hist", "clients": 9, "cells": 7, "momentum": 0.9},
    "sdfeel ring": {"algorithm": "sdfeel", "clients": 9, "cells": 5, "graph": "ring", "gossip": 2,
                    "assign": "edge_iid"},
}  # fmt: skip


def machine():
    """What bits depend on: tests compile without optimisation, so these are not the bits of an ordinary run."""
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "flags" in line), ""
    )
    wide = [name for name in ("avx2", "avx512f", "amx_tile") if name in processor.split()]
    return f"jax {jax.__version__}, {' '.join(wide)}"


def made(name, folder):
    with pytest.MonkeyPatch.context() as patch:
        if "--xla_cpu_use_fusion_emitters=false" in os.environ["XLA_FLAGS"]:  # recorded as XLA compiles by itself
            compiled = partialmethod(CompiledPrograms.get, compiler_options={"xla_cpu_use_fusion_emitters": True})
            patch.setattr(CompiledPrograms, "get", compiled)
        result = fedge.run(KEYS | RUNS[name], out=folder)
    digest = hashlib.sha256()
    for path in sorted(result.weights):
        digest.update(np.ascontiguousarray(result.weights[path]).tobytes())
    columns = ("accuracy", "loss", "train_loss", "simulated_seconds")
    return {
        "weights": digest.hexdigest(),
        **{c: [row[c] for row in result.history] for c in columns},
        "bytes": result.final["bytes"],
    }


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_what_it_was(name, tmp_path):
    records = json.loads(RECORD.read_text())
    if not any(name in record for record in records.values()):
        pytest.skip(f"no run of {name} is recorded yet: python -m tests.test_recorded_runs")
    found = made(name, tmp_path / "run")
    if machine() in records:
        assert found == records[machine()][name]
        return
    for record in records.values():
        for column in ("accuracy", "loss", "train_loss", "simulated_seconds"):
            assert found[column] == pytest.approx(record[name][column], rel=1e-4, abs=2e-3)
        assert found["bytes"] == record[name]["bytes"]


if __name__ == "__main__":
    import tempfile

    import tests.conftest  # noqa: F401  the same devices and compiler options

    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        known[machine()] = {name: made(name, Path(place) / str(n)) for n, name in enumerate(RUNS)}
    RECORD.write_text(json.dumps(known, indent=1) + "\n")
