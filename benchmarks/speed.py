"""Measure fedge beside the other simulators, interleaved and repeated in one go.

    make bench                          all of them; about 25 minutes on 2 cores, and the first time the installations
    python benchmarks/speed.py fedge "PyTorch loop"     only these;   REPEATS=5 for more repeats than 3
    LOADS=resnet python benchmarks/speed.py fedge "PyTorch loop, 2 processes"     only this workload

Every contender trains the same workloads (ResNet-18: PyTorch only) from the same initial weights on the same samples in
the same order, and its final model is held against fedge's. Each measurement is a process of its own, timed from its
start to its end; the memory of all processes it starts (proportional set size, sampled) is measured in a run of its
own. The peers live in environments of their own, .venv-NAME, made on first use from benchmarks/peers/NAME.txt. Writes
benchmarks/results/DATE-speed.json and .md.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
REPEATS = int(os.environ.get("REPEATS", "3"))
ONLY = os.environ.get("LOADS", "").split()  # workloads; unless named, all, and fedge's other algorithms
Run = dict[str, Any]
# Multiply-adds really needed per client step, times two: forward and weight gradients of all layers, input gradients
# of all but the first. MLP, batch 50: 784·300 twice and 300·10 three times. CNN, batch 10: 144,000 twice and
# 320,000 + 16,000 + 500 three times.
# ResNet-18, batch 10: 1,769,472 twice and 553,653,248 three times, as a plain sum (fedge's form needs fewer).
FLOP = {
    "mlp": 2 * 50 * (2 * 784 * 300 + 3 * 3000),
    "cnn": 2 * 10 * (2 * 144_000 + 3 * 336_500),
    "resnet": 2 * 10 * (2 * 1_769_472 + 3 * 553_653_248),
}
LOADS = {
    "mlp": "FedAvg, 60 clients, 784-300-10 MLP, batch 50, 40 steps × 5 rounds",
    "cnn": "FedAvg, 50 clients of one class, CNN with 21,840 parameters, batch 10, 5 steps × 20 rounds",
    "resnet": "FedAvg, 4 clients, ResNet-18, random 32 × 32 × 3 images, batch 10, 5 steps × 3 rounds",
}


OWN = ("hierfavg", "hfedavg", "hist", "sdfeel", "hiersfl")
BARE = "import jax, flax.nnx, optax; a = jax.numpy.ones((8, 8)); print('{}') if (a @ a).sum() else None"


class Peer(NamedTuple):
    script: str
    home: str  # which environment
    words: tuple[str, ...] = ()
    loads: tuple[str, ...] = ("mlp", "cnn")


PEERS = {
    "PyTorch loop": Peer("torch_loop.py", "torch", loads=tuple(FLOP)),
    "PyTorch loop, 2 processes": Peer("torch_pool.py", "torch", loads=tuple(FLOP)),
    "Flower": Peer("flower.py", "flower"),
    "pfl": Peer("pfl_sim.py", "pfl_sim"),
    "pfl, 2 processes": Peer("pfl_sim.py", "pfl_sim", ("--processes", "2")),
    "fluke": Peer("fluke_sim.py", "fluke_sim"),
    "FedJAX": Peer("fedjax_sim.py", "fedjax_sim"),
}
TARGETS = {  # fedge's speed over theirs
    "mlp": {"PyTorch loop": 3.5, "PyTorch loop, 2 processes": 2.0},
    "cnn": {"PyTorch loop": 4.0, "PyTorch loop, 2 processes": 2.0, "pfl, 2 processes": 2.0, "Flower": 5.0,
            "FedJAX": 4.0},
    "resnet": {"PyTorch loop, 2 processes": 1.0},
}  # fmt: skip
SHARE = {"mlp": " (target 85%)", "cnn": " (target 40%)", "resnet": ", counted as a plain sum"}  # of the GEMM peak


def python_of(home: str) -> Path:
    """Return the interpreter of a peer's environment, which is made on first use."""
    folder = HERE.parent / f".venv-{home.removesuffix('_sim')}"
    if not (folder / "installed").exists():
        print(f"installing {home} …", flush=True)
        venv.create(folder, with_pip=True)
        install = [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*install, "-r", HERE / f"peers/{home}.txt"], check=True)
        (folder / "installed").touch()
    return folder / "bin/python"


def measure(*command: Any, watch: bool = False, tries: int = 2) -> Run:
    """Measure a process and all it starts: what it prints, seconds from start to end, and, if watched, its peak memory.

    Watching takes an eighth of a core from whoever uses all of them, so what is watched is not timed. A process that
    fails is repeated once, aloud: pfl's two at times abort when they are done.
    """
    token = f"{os.getpid()}-{time.monotonic_ns()}"
    files = partial(tempfile.TemporaryFile, "w+")
    with tempfile.TemporaryDirectory() as scratch, files() as out, files() as errors:
        private = {"BENCH_TOKEN": token, "FLWR_HOME": scratch, "RAY_TMPDIR": scratch}
        began, peak = time.perf_counter(), 0.0
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=errors, env=os.environ | private)
        while watch and process.poll() is None:
            peak = max(peak, memory(token))
            time.sleep(0.1)
        process.wait()
        seconds = time.perf_counter() - began
        out.seek(0)
        printed = out.read().strip()
        if process.returncode:
            errors.seek(0)
            if tries > 1:
                print(f"{' '.join(map(str, command))} failed; once more", flush=True)
                return measure(*command, watch=watch, tries=tries - 1)
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{errors.read()[-3000:]}")
    found = json.loads(printed.splitlines()[-1]) if printed else {}
    return found | ({"peak_gb": peak} if watch else {"wall_seconds": seconds})


def memory(token: str) -> float:
    """Add up the gigabytes of all processes with this token in their environment; pages they share are counted once.

    (This process must not share any with them, so it imports nothing of fedge before it is done measuring.)
    """
    total = 0
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and token.encode() in (folder / "environ").read_bytes():
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total / 1e6


def main() -> None:
    chosen = sys.argv[1:] or ["fedge", *PEERS]
    if unknown := set(chosen) - {"fedge", *PEERS}:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are: fedge, {', '.join(PEERS)}")
    homes = {peer.home: python_of(peer.home) for name, peer in PEERS.items() if name in chosen}
    torch, workloads = python_of("torch"), HERE / "workloads.py"
    images = measure(sys.executable, workloads, "where")["mnist"]
    if images is not None:  # wherever it is, also for processes with a cache folder of their own
        os.environ["FEDGE_DATA"] = images
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.npz" for name in ONLY or FLOP}
        os.environ["FEDGE_CACHE"] = folder
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        for name, file in files.items():
            measure(sys.executable, workloads, "dump", name, file)
        everything = {"bare": [sys.executable, "-c", BARE]}
        for load, file in files.items():
            everything[f"fedge {load}"] = [sys.executable, workloads, "fedge", load, file]
            for name in (n for n in PEERS if n in chosen and load in PEERS[n].loads):
                peer = PEERS[name]
                everything[f"{name} {load}"] = [
                    homes[peer.home], HERE / "peers" / peer.script, load, file, *peer.words
                ]  # fmt: skip
        everything |= {load: [sys.executable, workloads, "own", load] for load in OWN if not ONLY}
        compiled = Path(folder) / "compiled"
        print("memory …", flush=True)
        shutil.rmtree(compiled)
        peaks = {name: measure(*command, watch=True)["peak_gb"] for name, command in everything.items()}
        if not ONLY:
            many = (sys.executable, workloads, "memory")
            runs["memory"] = [measure(*many) | {"peak_gb": measure(*many, watch=True)["peak_gb"]}]
        shutil.rmtree(compiled)  # the first repeat compiles, the others find what it compiled
        threads = len(os.sched_getaffinity(0))
        for number in range(REPEATS):
            print(f"repeat {number + 1} of {REPEATS} …", flush=True)
            for what in ((sys.executable, workloads, "gemm"), (torch, HERE / "peers/torch_loop.py", "gemm", threads)):
                runs.setdefault("gemm", []).append(measure(*what))
            for name, command in everything.items():
                runs.setdefault(name, []).append(measure(*command) | {"peak_gb": peaks[name]})

    from fedge.runner.device import prepare
    from fedge.runner.environment import environment

    prepare()
    hardware = environment(0) | {"data": "mnist" if images is not None else "fashion-mini"}
    report = describe(runs, hardware, chosen)
    stem = HERE / f"results/{'-'.join([str(date.today()), 'speed', *ONLY])}"
    stem.parent.mkdir(exist_ok=True)
    stem.with_suffix(".md").write_text(report)
    stem.with_suffix(".json").write_text(json.dumps({"hardware": hardware, "runs": runs}, indent=1) + "\n")
    print(report)


def describe(runs: dict[str, list[Run]], hardware: dict[str, Any], chosen: list[str]) -> str:
    peak = max(r["gflops"] for r in runs["gemm"])
    text = [
        f"# Speed, {date.today()}",
        "",
        f"{hardware['processor']}, {len(hardware['devices'])} cores; fedge {hardware['versions']['fedge']} with jax "
        f"{hardware['versions']['jax']}, Python {hardware['versions']['python']}. Made by `make bench`: {REPEATS} "
        "interleaved repeats, a process for each measurement; medians, with the lowest and highest in brackets. Steps "
        "are client SGD steps after the first round; ratios are fedge's speed over theirs within one repeat; seconds "
        "are from the start of the process to its end, imports and compilation included (fedge cold: nothing compiled "
        f"before). The best 2048³ float32 product of JAX or PyTorch in these repeats: {peak:.0f} GFLOP/s; only "
        "multiplications that are needed are counted (no input gradient of the first layer). Peak memory is that of a "
        "run of its own, in which fedge compiles. "
        + (
            "MLP and CNN: MNIST; the others are given its images as float32 numbers."
            if hardware["data"] == "mnist"
            else "Built-in images."
        ),
    ]
    for load in ONLY or FLOP:
        ours = runs[f"fedge {load}"]
        share = max(r["steps_per_second"] for r in ours) * FLOP[load] / 1e9 / peak
        digits = 0 if load != "resnet" else 2
        cold, *warm = (r["wall_seconds"] for r in ours)
        text += [
            "",
            f"## {load}: {LOADS[load]}",
            "",
            "| | steps/s | fedge is faster by | target | seconds in all | peak GB | final models differ by | of |",
            "|---|---|---|---|---|---|---|---|",
            f"| **fedge** | {spread([r['steps_per_second'] for r in ours], digits)} | | | {cold:.1f} cold, "
            f"{statistics.median(warm or [cold]):.1f} | {ours[0]['peak_gb']:.2f} | | |",
        ]
        for name in (n for n in PEERS if n in chosen and load in PEERS[n].loads):
            theirs = runs[f"{name} {load}"]
            ratio = [a["steps_per_second"] / b["steps_per_second"] for a, b in zip(ours, theirs, strict=True)]
            versions = ", ".join(f"{k} {v}" for k, v in theirs[0]["versions"].items())
            text.append(
                f"| {name} | {spread([r['steps_per_second'] for r in theirs], digits)} | {spread(ratio, 2)}× "
                f"| {TARGETS[load].get(name, '')} | {spread([r['wall_seconds'] for r in theirs], 1)} "
                f"| {theirs[0]['peak_gb']:.2f} | {max(r['largest_difference'] for r in theirs):.0e} "
                f"| {versions} |"
            )
        text += ["", f"fedge's best repeat: {share:.0%} of the GEMM peak{SHARE[load]}."]
        begun, *again = (r["first_round_seconds"] for r in ours)
        text[-1] += (
            f" From process start to the first trained round: {begun:.1f} s cold, "
            f"{statistics.median(again or [begun]):.1f} s with the compiled program in the cache."
        )
        if "tested_per_second" in ours[0]:
            text[-1] += f" Tested: {spread([r['tested_per_second'] for r in ours], 0)} images a second."
    if ONLY:
        return "\n".join([*text, ""])
    text += ["", "## fedge's other algorithms", "", "| | steps/s | compile s, cold | peak GB |", "|---|---|---|---|"]
    for load in OWN:
        mine = runs[load]
        text.append(
            f"| {load}, {mine[0]['what']} | {spread([r['steps_per_second'] for r in mine], 0)} "
            f"| {mine[0]['compile_seconds']:.1f} | {mine[0]['peak_gb']:.2f} |"
        )
    ratio = [a["steps_per_second"] / b["steps_per_second"] for a, b in zip(runs["hist"], runs["hfedavg"], strict=True)]
    many = runs["memory"][0]
    text += [
        "",
        f"A process that imports JAX, Flax and optax and multiplies one small matrix, compiled: peak "
        f"{runs['bare'][0]['peak_gb']:.2f} GB.",
        "",
        f"HIST with N = 4 makes {spread(ratio, 2)} times the client steps per second of HFedAvg (target 3).",
        "",
        f"10,000 clients of the MLP in 20 cells, one global round: peak resident memory {many['peak_gb']:.2f} GB "
        f"(target: under 2 GB); {many['steps_per_second']:,.0f} client steps/s at batch 6.",
        "",
    ]
    return "\n".join(text)


def spread(values: list[float], digits: int) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


if __name__ == "__main__":
    main()
