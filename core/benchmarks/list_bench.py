"""How long the commands take that only look, beside ``python -c "import typer, pydantic"``, with and without 500 more plugins.

    python core/benchmarks/list_bench.py [--rounds 15] [--plugins 500] [--json]

Every command and the base are run in turn in each round; figures are medians of wall time and their ratio to the base.
The 500 plugins (each 4 methods, 2 datasets, 3 metrics, schemas of 8 options) are written into a throw-away environment that
sees this environment's packages. Exit code 1 when a bar is not met.

Measured 2026-12-01 with Python 3.11.7, typer 0.29, pydantic 2.14 and the plugins claritree, ihm and timeguard, medians of 15 on
two cores that others used too: list-methods 0.46 x the base, with 500 more plugins 1.16 x (--json 1.37 x), completion of a name
0.47 x and 1.24 x.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

BASE = ["-c", "import typer, pydantic"]
SCRIPT = "import sys\nfrom icml26.__main__ import main\nsys.exit(main())\n"
COMPLETE = {"_ICML26_COMPLETE": "complete_bash", "COMP_WORDS": "icml26\nrun\nm", "COMP_CWORD": "2"}


def environment(folder: Path) -> tuple[Path, Path]:
    """A virtual environment that sees the packages of this one; its python and site-packages.

    ``icml26`` beside its python is the script that installers write.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    import icml26

    seen = [item for item in sys.path if item.endswith(("site-packages", "/src")) and Path(item).is_dir()]
    paths = dict.fromkeys([*seen, str(Path(icml26.__file__).parents[1])])
    (packages / "seen.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    (folder / "bin" / "icml26").write_text(SCRIPT, encoding="utf-8")
    return folder / "bin" / "python", packages


def add_plugin(packages: Path, number: int) -> None:
    """Install one plugin with its index; importing its code would fail."""
    name = f"extra-{number}"
    package = f"icml26_plugin_extra_{number}"
    task = f"extra.task-{number}"
    fields = {
        f"option_{i}": {
            "default": 0.5,
            "description": "What this option does, in a line of the usual length",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "title": f"Option {i}",
            "type": "number",
        }
        for i in range(8)
    }
    schema = {"additionalProperties": False, "properties": fields, "title": "Config", "type": "object"}
    common = {"task": task, "target": f"{package}.impl:Thing", "summary": "What it does, in a line of the usual length"}
    paper = {"title": "A paper with a title of the usual length", "arxiv": "2605.00001", "venue": "ICML 2026"}
    types = {part: f"{package}.types:{part.title()}" for part in ("inputs", "truth", "output")}
    index = {
        "schema": "icml26.index/1",
        "core_api": 1,
        "plugin": name,
        "distribution": f"icml26-plugin-{name}",
        "tasks": [{"name": task, "summary": "A task", **types, "metrics": [f"{name}/metric-0"]}],
        "methods": [{**common, "name": f"method-{i}", "paper": paper, "config_schema": schema} for i in range(4)],
        "datasets": [{**common, "name": f"data-{i}", "config_schema": schema} for i in range(2)],
        "metrics": [{**common, "name": f"metric-{i}", "values": [{"direction": "lower"}]} for i in range(3)],
        "recipes": [],
        "smoke": {},
    }
    folder = packages / package
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "plugin.py").write_text("raise RuntimeError('the list commands must not import this')\n")
    (folder / "icml26-index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    metadata = packages / f"{package}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: icml26-plugin-{name}\nVersion: 0.1\n\nA description.\n"
    )
    (metadata / "RECORD").touch()
    (metadata / "entry_points.txt").write_text(f"[icml26]\n{name} = {package}.plugin\n")


def script(python: Path) -> str:
    """The ``icml26`` beside a python."""
    return str(python.with_name("icml26"))


def seconds(python: Path, arguments: list[str], **variables: str) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    done = subprocess.run(
        [str(python), *arguments], capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, **variables}
    )
    elapsed = time.perf_counter() - start
    if done.returncode != 0:
        raise SystemExit(f"{arguments} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return elapsed


def measure(rounds: int, extra: int) -> dict[str, Any]:
    """Medians in seconds, each with its ratio to the base of the same rounds."""
    with tempfile.TemporaryDirectory() as folder:
        few, _ = environment(Path(folder) / "few")
        many, packages = environment(Path(folder) / "many")
        for number in range(extra):
            add_plugin(packages, number)
        # Bytecode goes to a folder of ours in the first round, whatever installer or environment left it out.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        variables = {"ICML26_HOME": str(Path(folder) / "home"), "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        commands: dict[str, Any] = {
            "base": (few, BASE, {}, None),
            "list-methods": (few, [script(few), "list-methods"], {}, 1.0),
            f"list-methods, {extra} more plugins": (many, [script(many), "list-methods"], {}, 1.5),
            f"list-methods --json, {extra} more plugins": (many, [script(many), "list-methods", "--json"], {}, 1.5),
            "completion of a name": (few, [script(few)], COMPLETE, 1.0),
            f"completion of a name, {extra} more plugins": (many, [script(many)], COMPLETE, 1.5),
            "python -c pass": (few, ["-c", "pass"], {}, None),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, (python, arguments, more, _) in commands.items():
                elapsed = seconds(python, arguments, **{**variables, **more})
                if number:  # not the first round, which compiles
                    times[name].append(elapsed)
    base = statistics.median(times["base"])
    return {
        name: {
            "median_seconds": statistics.median(times[name]),
            "ratio": statistics.median(times[name]) / base,
            "bar": bar,
        }
        for name, (_, _, _, bar) in commands.items()
    }


def main() -> int:
    """Measure, print, and say by the exit code whether the bars are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--plugins", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.rounds, options.plugins)
    if options.json:
        print(json.dumps({"schema": "icml26.list-bench/1", "rounds": options.rounds, "figures": figures}, indent=1))
    else:
        for name, figure in figures.items():
            bar = f"  (bar {figure['bar']})" if figure["bar"] else ""
            print(f"{figure['median_seconds'] * 1000:7.1f} ms  {figure['ratio']:5.2f} x  {name}{bar}")
    return 1 if any(figure["bar"] and figure["ratio"] > figure["bar"] for figure in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
