"""Wall and processor time by part, and peak memory, of a piece of work."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Measured:
    """What a piece of work cost.

    ``seconds`` by part (``attribution`` is wall time, ``attribution-cpu`` processor time of the process); ``peak_bytes``
    above what was in use at the beginning, 0 where the system does not say.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0

    @contextlib.contextmanager
    def part(self, name: str, device: Any = None) -> Iterator[None]:
        """Add the time of a block under ``name`` and ``name``-cpu."""
        _wait_for(device)
        begun, worked = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            _wait_for(device)
            for key, spent in ((name, time.perf_counter() - begun), (f"{name}-cpu", time.process_time() - worked)):
                self.seconds[key] = self.seconds.get(key, 0.0) + spent


@contextlib.contextmanager
def measured(device: Any = None) -> Iterator[Measured]:
    """Measure the block: on CUDA the allocator's peak, on Linux the process's resident peak (both above the beginning)."""
    result = Measured()
    if getattr(device, "type", "cpu") == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        try:
            yield result
        finally:
            result.peak_bytes = max(0, torch.cuda.max_memory_allocated(device) - before)
        return
    before = _reset_resident_peak()
    try:
        yield result
    finally:
        if before:
            result.peak_bytes = max(0, _status("VmHWM") - before)


def _wait_for(device: Any) -> None:
    if getattr(device, "type", "cpu") == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _reset_resident_peak() -> int:
    """Resident bytes now, after the kernel's high-water mark was set back to it; 0 where that is not possible."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 0
    return _status("VmRSS")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0
