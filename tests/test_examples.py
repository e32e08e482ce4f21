"""Examples are run, not only shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ELSEWHERE = {"two_hosts.py"}  # tests/runner/test_hosts.py runs it


@pytest.mark.parametrize(
    "path", sorted(p for p in EXAMPLES.glob("*.py") if p.name not in ELSEWHERE), ids=lambda p: p.stem
)
def test_example(path, tmp_path):
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    accuracies = [float(a) for a in re.findall(r"([\d.]+)%", done.stdout)]
    assert len(accuracies) >= 1
    assert min(accuracies) > 90
