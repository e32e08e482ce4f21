"""Tests have two host devices, and a cache folder of their own."""

import gc
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share their controller's
    _cache = tempfile.TemporaryDirectory(prefix="fedge-tests-")
    os.environ["FEDGE_CACHE"] = _cache.name

# Tests compile many programs and run each for a moment; what the optimiser would do to them is not what they are about.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
if version("jaxlib").startswith("0.10."):  # XLA refuses to start on a flag that it does not know, and this one may go
    # A CNN's round compiles in 1.6 s of CPU time instead of 3.2.
    quick = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{os.environ['XLA_FLAGS']} {quick}"

import hypothesis
import jax
import pytest

from fedge.engine.compiled import return_memory
from tests.browser.conftest import NO_CHROMIUM

ROOM = 10**9  # bytes

hypothesis.settings.register_profile("fedge", deadline=None)  # machines are noisy, and laws are not about time
hypothesis.settings.load_profile("fedge")


@pytest.fixture(autouse=True)
def forget():
    """Keep compiled programs for the tests that follow, until they fill the memory."""
    yield
    if resident() > ROOM:
        jax.clear_caches()
        gc.collect()
        return_memory()


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    if any(NO_CHROMIUM in str(report.longrepr) for report in skipped):
        terminalreporter.section(f"BROWSER TESTS WERE SKIPPED: {NO_CHROMIUM}", red=True, bold=True)


def resident():
    """Return the bytes of this process in memory, where the system tells."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else ROOM + 1


jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", os.environ["FEDGE_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.devices()  # JAX starts now, or a first test with devices=1 would leave one device to all that follow
