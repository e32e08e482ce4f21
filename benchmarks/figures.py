"""Measure how long the papers' MNIST and Fashion-MNIST figures take on this machine.

    python benchmarks/figures.py [VARIANT]      as printed unless a variant is named; all seeds, nothing compiled before

Runs `fedge reproduce` on HIST's Fig. 2 to 4 and SD-FEEL's Fig. 3a, 4 and 5 (3b is CIFAR-10), with results in a folder
that is thrown away, and prints the seconds from the start of each process to its end, without drawing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

TARGETS = ("hist", "sdfeel/fig3a", "sdfeel/fig[45]*")


def main() -> None:
    variant, total = (sys.argv[1:] or ["printed"])[0], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            words = ["reproduce", target, "--variant", variant, "--draw", "no", "--out", f"{folder}/results"]
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "fedge.cli", *words],
                check=True,
                env=os.environ | {"JAX_COMPILATION_CACHE_DIR": folder},
            )
            seconds = time.perf_counter() - began
            total += seconds
            print(f"{target}: {seconds:.0f} s", flush=True)
    print(f"all, {variant}: {total:.0f} s")


if __name__ == "__main__":
    main()
