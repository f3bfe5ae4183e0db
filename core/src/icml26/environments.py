"""Virtual environments keyed by what a run needs, so that methods whose dependencies cannot live together meet in one bench.

An environment is built under a lock in its final place, marked ready last, never changed after. Whoever uses one holds
its lock shared, so that ``prune`` leaves it alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from icml26.catalog import Catalog
from icml26.errors import EnvironmentError_
from icml26.home import home_folder
from icml26.keys import digest
from icml26.locks import FolderLock
from icml26.needs import Need, needs_of, running_python
from icml26.records import RunRequest, write_text_durably
from icml26.registry.target import find_uv
from icml26.smallfiles import read_bytes

SCHEMA = "icml26.environment/1"
READY = "icml26-environment.json"
BUILD_SECONDS = 3600.0
_KEY_LENGTH = 24


@dataclass(frozen=True, slots=True)
class Environment:
    """A ready environment: its key, folder, what was asked for, and what the resolver chose."""

    key: str
    folder: Path
    python_version: str
    needs: tuple[str, ...]
    packages: dict[str, str]
    created: str
    used: str

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    def size(self) -> int:
        """Bytes on disk; files that are linked from elsewhere count in full."""
        return sum(path.lstat().st_size for path in self.folder.rglob("*") if not path.is_dir())


class Environments:
    """Makes and finds environments; a context manager that holds those it gave out."""

    def __init__(self, root: Path | None = None, *, say: Callable[[str], None] = lambda text: None) -> None:
        self.root = (root or home_folder()) / "environments"
        self._say = say
        self._held: dict[str, FolderLock] = {}
        self._known: dict[str, Environment] = {}
        self._process: subprocess.Popen[str] | None = None
        self._aborted = False

    def __enter__(self) -> Environments:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def abort(self) -> None:
        """End a build that another thread is in; it raises there, and the next build heals what it left."""
        self._aborted = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Let go of every environment."""
        for lock in self._held.values():
            lock.release()
        self._held.clear()

    def interpreters(self, catalog: Catalog, requests: Iterable[RunRequest]) -> dict[str, str]:
        """Key of each request to the interpreter that runs it; missing environments are built first.

        Raises EnvironmentError_ that names the runs whose needs cannot be installed together.
        """
        found = {}
        for request in requests:
            needs = needs_of(catalog, request)
            try:
                found[request.key] = self.ensure(needs).python
            except EnvironmentError_ as error:
                raise EnvironmentError_(f"no environment for {request.method} on {request.dataset}: {error}") from error
        return found

    def ensure(self, needs: tuple[Need, ...]) -> Environment:
        """The environment that has these distributions; built when there is none. Raises EnvironmentError_."""
        asked = digest([running_python(), [[need.name, need.line, need.content] for need in needs], _settings()])[
            :_KEY_LENGTH
        ]
        if asked in self._known:
            return self._known[asked]
        try:
            (self.root / "asked").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentError_(
                f"{self.root} cannot be made ({error.strerror or error}); set ICML26_HOME"
            ) from error
        memo = self.root / "asked" / f"{asked}.json"
        environment = self._remembered(memo)
        if environment is None:
            with FolderLock(self.root / "asked" / f"{asked}.lock").exclusive():
                environment = self._remembered(memo) or self._make(needs, memo)
        self._known[asked] = environment
        with contextlib.suppress(OSError):
            os.utime(environment.folder / READY)
        return environment

    def ready(self) -> list[Environment]:
        """Ready environments, the one used last first."""
        found = [self._read(path.parent.name) for path in self.root.glob(f"*/{READY}")]
        return sorted((item for item in found if item is not None), key=lambda item: item.used, reverse=True)

    def prune(self, *, unused_for: timedelta = timedelta(0), dry_run: bool = False) -> tuple[list[str], list[str]]:
        """Remove environments not used for that long and what killed builds left; (removed, still in use) by key."""
        limit = (datetime.now(UTC) - unused_for).isoformat()
        removed, busy = [], []
        for folder in sorted(path for path in self.root.glob("*") if path.is_dir() and path.name != "asked"):
            environment = self._read(folder.name)
            if environment is not None and environment.used > limit:
                continue
            lock = FolderLock(self.root / f"{folder.name}.lock")
            if not lock.try_exclusive():
                busy.append(folder.name)
                continue
            try:
                if not dry_run:
                    (folder / READY).unlink(missing_ok=True)
                    shutil.rmtree(folder)
                removed.append(folder.name)
            except OSError as error:
                raise EnvironmentError_(f"{folder} cannot be removed ({error.strerror or error})") from error
            finally:
                lock.release()
        return removed, busy

    def _remembered(self, memo: Path) -> Environment | None:
        try:
            key = str(json.loads(memo.read_text(encoding="utf-8"))["environment"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return self._held_and_ready(key)

    def _make(self, needs: tuple[Need, ...], memo: Path) -> Environment:
        uv = find_uv()
        if uv is None:
            raise EnvironmentError_(
                "environments of their own are made by uv, which is not installed: pip install 'icml26[env]'"
            )
        self._say("resolving " + ", ".join(need.name for need in needs))
        work = memo.with_suffix("")
        work.mkdir(exist_ok=True)
        lock_file = work / "pylock.toml"
        requirements = work / "requirements.in"
        write_text_durably(requirements, "".join(f"{need.line}\n" for need in needs))
        command = [uv, "pip", "compile", "--quiet", "--format", "pylock.toml", "--python", sys.executable]
        self._run_uv(
            [*command, *_fresh(needs), "--output-file", str(lock_file), str(requirements)], "resolve these together"
        )
        packages = _packages(lock_file)
        key = digest([running_python(), packages, [need.content for need in needs]])[:_KEY_LENGTH]
        environment = self._held_and_ready(key)
        if environment is None:
            self._build(uv, key, lock_file, needs, packages)
            environment = self._held_and_ready(key)
        write_text_durably(memo, json.dumps({"environment": key}) + "\n")
        shutil.rmtree(work, ignore_errors=True)
        if environment is None:
            raise EnvironmentError_(f"environment {key} was removed while it was built; try again")
        return environment

    def _build(
        self, uv: str, key: str, lock_file: Path, needs: tuple[Need, ...], packages: list[dict[str, Any]]
    ) -> None:
        folder = self.root / key
        lock = FolderLock(self.root / f"{key}.lock")
        with lock.exclusive():
            if self._read(key) is None:
                shutil.rmtree(folder, ignore_errors=True)
                self._say(f"building environment {key} ({len(packages)} distributions)")
                inherited = (lock.descriptor,)
                self._run_uv([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], "make it", inherited)
                install = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), *_fresh(needs)]
                # The lock obeys the constraints already, and uv takes no constraints beside a lock.
                self._run_uv([*install, "-r", str(lock_file)], "install into it", inherited, without="UV_CONSTRAINT")
                document = {
                    "schema": SCHEMA,
                    "key": key,
                    "python_version": running_python(),
                    "needs": [need.line for need in needs],
                    "packages": {str(item["name"]): str(item.get("version") or "local") for item in packages},
                    "created": datetime.now(UTC).isoformat(),
                }
                write_text_durably(folder / READY, json.dumps(document, indent=1) + "\n")

    def _run_uv(
        self, command: list[str], purpose: str, descriptors: tuple[int, ...] = (), *, without: str = ""
    ) -> None:
        """Run uv; it inherits the lock, which therefore outlives us when we are killed and it is not."""
        variables = {**os.environ, **_uv_variables(), "VIRTUAL_ENV": ""}
        variables.pop(without, None)
        try:
            self._process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                pass_fds=descriptors,
            )
        except OSError as error:
            raise EnvironmentError_(f"uv cannot be started ({error.strerror or error})") from error
        with self._process as process:
            try:
                _, words = process.communicate(timeout=BUILD_SECONDS)
            except BaseException as error:
                process.kill()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise EnvironmentError_(f"uv did not {purpose} within {BUILD_SECONDS:.0f} s") from error
                raise
            finally:
                self._process = None
        if self._aborted:
            raise EnvironmentError_(f"stopped while uv was to {purpose}")
        if process.returncode:
            raise EnvironmentError_(f"uv could not {purpose}:\n{words.strip()[-3000:]}")

    def _held_and_ready(self, key: str) -> Environment | None:
        """The environment when it is ready, its lock then held shared until ``close``; waits for one that is being built."""
        if key not in self._held:
            self._held[key] = FolderLock(self.root / f"{key}.lock")
            self._held[key].share()
        environment = self._read(key)
        if environment is None:
            self._held.pop(key).release()
        return environment

    def _read(self, key: str) -> Environment | None:
        path = self.root / key / READY
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            used = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        except (OSError, ValueError):
            return None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            return None
        return Environment(
            key,
            path.parent,
            document["python_version"],
            tuple(document["needs"]),
            document["packages"],
            document["created"],
            used,
        )


def environment_row(environment: Environment) -> dict[str, Any]:
    """An environment as JSON, with its size."""
    return asdict(environment) | {"folder": str(environment.folder), "bytes": environment.size()}


def _packages(lock_file: Path) -> list[dict[str, Any]]:
    """What the resolver chose: name, version and hashes, without the places where files were found."""
    document = tomllib.loads(lock_file.read_text(encoding="utf-8"))
    packages = []
    for item in document.get("packages", []):
        hashes = sorted(wheel.get("hashes", {}).get("sha256", "") for wheel in item.get("wheels", []))
        packages.append({"name": item["name"], "version": item.get("version"), "hashes": hashes})
    return sorted(packages, key=lambda item: str(item["name"]))


def _fresh(needs: Iterable[Need]) -> Iterator[str]:
    """Projects in folders are built anew: uv would take an older build of them while pyproject.toml is unchanged."""
    for need in needs:
        if need.folder is not None:
            yield from ("--refresh-package", need.name)


#: Settings of the installer that change what is resolved; pip's count where uv's own are not set.
_PASSED_ON = {
    "UV_FIND_LINKS": "PIP_FIND_LINKS",
    "UV_CONSTRAINT": "PIP_CONSTRAINT",
    "UV_DEFAULT_INDEX": "PIP_INDEX_URL",
    "UV_INDEX": "PIP_EXTRA_INDEX_URL",
}


def _uv_variables() -> dict[str, str]:
    found = {}
    for own, pips in _PASSED_ON.items():
        value = os.environ.get(own) or os.environ.get(pips)
        if value:
            found[own] = value
    return found


def _settings() -> dict[str, str]:
    """What besides the needs decides a resolution; constraint files count by their content."""
    settings = _uv_variables()
    for path in settings.get("UV_CONSTRAINT", "").split():
        with contextlib.suppress(OSError):
            settings[path] = read_bytes(path).decode("utf-8", "replace")
    return settings
