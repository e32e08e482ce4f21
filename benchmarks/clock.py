"""Tell how old this process is, without importing anything that would make it older."""

from __future__ import annotations

import os
from pathlib import Path


def age() -> float:
    """Return the seconds since this process was started."""
    began = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - began
