"""Two host devices for every test, and a cache folder of their own."""

import os
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share their controller's
    _cache = tempfile.TemporaryDirectory(prefix="fedge-tests-")
    os.environ["FEDGE_CACHE"] = _cache.name

import hypothesis
import jax

hypothesis.settings.register_profile("fedge", deadline=None)  # machines are noisy, and laws are not about time
hypothesis.settings.load_profile("fedge")

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", os.environ["FEDGE_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
