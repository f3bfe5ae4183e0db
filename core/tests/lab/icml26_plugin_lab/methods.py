"""Methods, datasets and metrics of the lab."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icml26 import Dataset, Method, MethodConfig, Problem
from pydantic import Field

from icml26_plugin_lab.types import Inputs, Output, Truth

_SLEEPER = "import time; time.sleep(600)"


class Noop(Method[Inputs, Output]):
    """Returns at once, or after a while."""

    class Config(MethodConfig):
        seconds: float = Field(0.0, ge=0, description="how long it takes")
        variant: int = Field(0, description="tells configs apart")

    def run(self, inputs: Inputs, ctx: Any) -> Output:
        if self.config.seconds:
            time.sleep(self.config.seconds)
        return Output(float(ctx.seed))


class Nothing(Dataset[Inputs, Truth]):
    """An empty problem."""

    def load(self, ctx: Any) -> Problem[Inputs, Truth]:
        return Problem(Inputs([1.0]), Truth(float(ctx.seed)))


class LoadHang(Dataset[Inputs, Truth]):
    """Never loads."""

    def load(self, ctx: Any) -> Problem[Inputs, Truth]:
        time.sleep(600)
        raise AssertionError


class Mischief(Method[Inputs, Output]):
    """Does one harm."""

    class Config(MethodConfig):
        do: str = Field(description="the name of a function below")
        size: float = Field(0.0, description="MiB, seconds, or whatever it needs")
        path: str = Field("", description="where it may leave a trace")

    def run(self, inputs: Inputs, ctx: Any) -> Output:
        return Output(_DEEDS[self.config.do](self.config, ctx))


def _sleep(config: Any, ctx: Any) -> float:
    for _ in ctx.progress(range(int(config.size * 100)), "sleep"):
        time.sleep(0.01)
    return 1.0


def _stuck_in_c(config: Any, ctx: Any) -> float:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(config.path).write_text(str(os.getpid()), encoding="ascii") if config.path else None
    ctypes.PyDLL(None).sleep(600)  # holds the interpreter lock: no Python signal handler can run
    return 0.0


def _sleep_in_c(config: Any, ctx: Any) -> float:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.PyDLL(None).usleep(int(config.size * 1e6))
    return 1.0


def _double_fork(config: Any, ctx: Any) -> float:
    """Leave a grandchild in a session of its own, then hang in C."""
    code = (
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        f"open({config.path!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    if config.size:
        ctypes.PyDLL(None).sleep(int(config.size))
    return 1.0


def _child(config: Any, ctx: Any) -> float:
    child = subprocess.Popen([sys.executable, "-c", _SLEEPER])
    Path(config.path).write_text(str(child.pid), encoding="ascii")
    time.sleep(config.size)
    return 1.0


def _touch(config: Any, ctx: Any) -> float:
    block = bytearray(int(config.size * 2**20))
    block[:: mmap.PAGESIZE] = b"\1" * len(range(0, len(block), mmap.PAGESIZE))
    time.sleep(0.05)
    return float(len(block))


def _spike(config: Any, ctx: Any) -> float:
    """Hold memory for a moment only."""
    return float(len(b"x" * int(config.size * 2**20)))


def _touch_in_child(config: Any, ctx: Any) -> float:
    code = (
        f"import time; block = bytearray({int(config.size)} << 20)\n"
        "block[::4096] = b'1' * len(range(0, len(block), 4096)); time.sleep(0.8)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1.0


def _reserve(config: Any, ctx: Any) -> float:
    """Reserve 200 GiB of addresses and touch 50 MB of them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    noreserve = 0x4000
    address = libc.mmap(
        None, 200 << 30, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve, -1, 0
    )
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    ctypes.memset(address, 1, 50_000_000)
    time.sleep(0.3)
    return 1.0


def _leak(config: Any, ctx: Any) -> float:
    """Keep memory after the run."""
    kept = bytearray(int(config.size * 2**20))
    kept[:: mmap.PAGESIZE] = b"\1" * len(range(0, len(kept), mmap.PAGESIZE))
    sys.modules[__name__].__dict__.setdefault("_kept", []).append(kept)
    return 1.0


def _speak_protocol(config: Any, ctx: Any) -> float:
    run_id = ctx.artifact("x").parent.name
    lie = f'{{"event": "done", "id": "{run_id}"}}\n{{"event": "finished", "id": "{run_id}"}}\nnot json\n'.encode()
    print(lie.decode(), flush=True)
    for descriptor in (1, 2, 3, 4):
        try:
            os.write(descriptor, lie)
        except OSError:
            continue
    time.sleep(0.2)
    return 1.0


def _close_descriptors(config: Any, ctx: Any) -> float:
    os.closerange(3, 4096)
    return 1.0


def _tamper(config: Any, ctx: Any) -> float:
    os.environ["ICML26_LAB_TRACE"] = "left"
    os.environ.pop("HOME", None)
    os.chdir("/")
    sys.stdout = None  # type: ignore[assignment]
    return 1.0


def _litter(config: Any, ctx: Any) -> float:
    Path("checkpoint.bin").write_bytes(b"x")
    return float(Path("checkpoint.bin").exists())


def _trace(config: Any, ctx: Any) -> float:
    return float("ICML26_LAB_TRACE" in os.environ or str(Path.cwd()) == "/" or sys.stdout is None)


def _pid(config: Any, ctx: Any) -> float:
    return float(os.getpid())


def _threads(config: Any, ctx: Any) -> float:
    return float(os.environ["OMP_NUM_THREADS"])


def _log(config: Any, ctx: Any) -> float:
    for step in range(5):
        ctx.log("loss", 1 / (step + 1), step)
        time.sleep(0.15)
    return 1.0


def _segfault(config: Any, ctx: Any) -> float:
    ctypes.string_at(0)
    return 0.0


def _value(value: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    return lambda config, ctx: value()


def _zero_dim() -> Any:
    import numpy as np

    return np.array(2.5)


def _float32() -> Any:
    import numpy as np

    return np.float32(0.1)


_DEEDS: dict[str, Callable[[Any, Any], Any]] = {
    "sleep": _sleep,
    "stuck-in-c": _stuck_in_c,
    "sleep-in-c": _sleep_in_c,
    "double-fork": _double_fork,
    "child": _child,
    "touch": _touch,
    "spike": _spike,
    "touch-in-child": _touch_in_child,
    "reserve": _reserve,
    "leak": _leak,
    "speak-protocol": _speak_protocol,
    "close-descriptors": _close_descriptors,
    "tamper": _tamper,
    "litter": _litter,
    "trace": _trace,
    "pid": _pid,
    "threads": _threads,
    "log": _log,
    "segfault": _segfault,
    "os-exit": lambda config, ctx: os._exit(3),
    "os-exit-zero": lambda config, ctx: os._exit(0),
    "abort": lambda config, ctx: os.abort(),
    "kill-self": lambda config, ctx: os.kill(os.getpid(), signal.SIGKILL),
    "raise": lambda config, ctx: 1 / 0,
    "memory-error": lambda config, ctx: bytearray(1 << 60),
    "nan": _value(lambda: float("nan")),
    "inf": _value(lambda: float("inf")),
    "minus-inf": _value(lambda: float("-inf")),
    "integer": _value(lambda: 7),
    "float32": _value(_float32),
    "zero-dim": _value(_zero_dim),
    "text": _value(lambda: "seven"),
    "list": _value(lambda: [1.0, 2.0]),
}


def score(output: Output, truth: Truth) -> float:
    """The value as it is."""
    value: float = output.value
    return value


def odd(output: Output, truth: Truth) -> float:
    """Something else than a number."""
    return object()  # type: ignore[return-value]


def gain(scores: dict[str, float], reference: dict[str, float]) -> float:
    """The difference to the reference."""
    return scores["score"] - reference["score"]


def gain_crash(scores: dict[str, float], reference: dict[str, float]) -> float:
    """Takes its process with it."""
    os._exit(5)
