"""Two host devices for every test, and a cache folder of their own."""

import os
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share their controller's
    _cache = tempfile.TemporaryDirectory(prefix="fedge-tests-")
    os.environ["FEDGE_CACHE"] = _cache.name

# Tests compile many programs and run each for a moment; what the optimiser would do to them is not what they are about.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("fedge", deadline=None)  # machines are noisy, and laws are not about time
hypothesis.settings.load_profile("fedge")


@pytest.fixture(autouse=True, scope="module")
def forget():
    """Compiled programs of other modules would only fill the memory."""
    yield
    jax.clear_caches()


jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", os.environ["FEDGE_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
