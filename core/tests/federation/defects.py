# ruff: noqa: E501 - edits are kept as they stand in the files
"""Bad plugins: the template's plugin with one defect each, and the only check that must notice it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from builders import install_editable
from icml26.new_plugin import Answers, new_plugin


@dataclass(frozen=True)
class Defect:
    """``edits`` are (file, old, new) below the package; ``check`` is the id of the check that fails.

    ``reindex`` writes the index anew from the hooks after the edits; ``forget_scores`` drops the stored smoke scores, for
    defects that change results on purpose; ``last`` is done to the project's package and metadata folder at the end.
    """

    name: str
    check: str
    edits: tuple[tuple[str, str, str], ...] = ()
    says: str = ""
    reindex: bool = True
    forget_scores: bool = False
    last: Callable[[Path, Path], None] | None = None


def in_metadata(old: str, new: str) -> Callable[[Path, Path], None]:
    def change(package: Path, info: Path) -> None:
        text = (info / "METADATA").read_text()
        assert old in text
        (info / "METADATA").write_text(text.replace(old, new))

    return change


def in_index(change: Callable[[dict], None]) -> Callable[[Path, Path], None]:  # type: ignore[type-arg]
    def write(package: Path, info: Path) -> None:
        path = package / "icml26-index.json"
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return write


def without(file: str) -> Callable[[Path, Path], None]:
    return lambda package, info: (package / file).unlink()


RUN_MEAN = "return Output(sample_mean(inputs.observations))"
GHOST = '''
@hookimpl
def icml26_metrics() -> Iterator[MetricSpec]:
    """How an estimate is judged."""
'''
EXTRA_METRIC = """
    yield MetricSpec("{name}", TASK, f"{{PACKAGE}}.metrics:{target}", values=(Value(),), summary="Another.")
"""
ABSOLUTE_ERROR = 'summary="Distance between the estimate and the true mean.",\n    )\n'


def method(new: str, old: str = RUN_MEAN, top: str = "") -> tuple[tuple[str, str, str], ...]:
    """Edits of the baseline's run."""
    edits = [("methods.py", old, new)]
    return (*edits, ("methods.py", "import json\n", f"import json\n{top}\n")) if top else tuple(edits)


DEFECTS = (
    Defect("other-core-api", "listed", says="core_api 99", last=in_index(lambda index: index.update(core_api=99))),
    Defect(
        "damaged-index",
        "listed",
        says="damaged",
        last=lambda package, info: (package / "icml26-index.json").write_text("{"),
    ),
    Defect("files-gone", "listed", says="files are gone", last=without("plugin.py")),
    Defect(
        "name-in-capitals",
        "names-portable",
        says="not kebab-case",
        last=in_index(lambda index: index["methods"][1].update(name="Sample_Mean")),
    ),
    Defect(
        "name-of-windows",
        "names-portable",
        says="reserved file name",
        last=in_index(lambda index: index["datasets"][0].update(name="nul")),
    ),
    Defect(
        "name-twice",
        "names-portable",
        says="declared twice",
        last=in_index(lambda index: index["methods"].append(index["methods"][1])),
    ),
    Defect(
        "heavy-hooks",
        "light-hook-module",
        (("plugin.py", "from icml26 import", "import pydantic  # noqa\nfrom icml26 import"),),
        "pydantic",
    ),
    Defect(
        "talking-hooks",
        "light-hook-module",
        (("plugin.py", "PACKAGE =", 'import sys\nsys.stdout.write("hello")\nPACKAGE ='),),
        "prints at import",
    ),
    Defect(
        "heavy-types",
        "light-types",
        (("types.py", "import numpy as np", "import numpy as np\nimport pydantic"),),
        "pydantic",
    ),
    Defect(
        "reference-of-nobody",
        "names-resolve",
        (("plugin.py", 'reference="sample-mean"', 'reference="nobody"'),),
        "nobody",
    ),
    Defect(
        "word-of-nobody",
        "names-resolve",
        (("plugin.py", 'role="baseline",', 'role="baseline",\n        provides=("magic",),'),),
        "magic",
    ),
    Defect(
        "extra-of-nobody",
        "names-resolve",
        (
            (
                "plugin.py",
                ABSOLUTE_ERROR,
                ABSOLUTE_ERROR
                + EXTRA_METRIC.format(name="ghost", target="absolute_error").replace(
                    'summary="Another."', 'summary="Another.", extra="magic"'
                ),
            ),
        ),
        "extra 'magic'",
    ),
    Defect(
        "target-gone",
        "targets-import",
        (("plugin.py", ABSOLUTE_ERROR, ABSOLUTE_ERROR + EXTRA_METRIC.format(name="ghost", target="gone")),),
        "gone",
    ),
    Defect(
        "old-index",
        "index-agrees",
        says="summary",
        reindex=False,
        last=in_index(lambda index: index["tasks"][0].update(summary="Old.")),
    ),
    Defect(
        "config-without-words",
        "config-documented",
        (("methods.py", ', description="fraction of observations cut off at each end"', ""),),
        "has no description",
    ),
    Defect(
        "config-without-default",
        "config-documented",
        (
            ("methods.py", "Field(0.1, ge=0", "Field(ge=0"),
            ("plugin.py", 'reference="sample-mean",', 'reference="sample-mean",\n        smoke={"trim": 0.1},'),
        ),
        "has no default",
    ),
    Defect(
        "config-without-bounds",
        "config-bounded",
        (("datasets.py", "Field(10.0, ge=0,", "Field(10.0,"),),
        "has no bounds",
    ),
    Defect(
        "profile-out-of-range",
        "overrides-valid",
        (
            (
                "plugin.py",
                'reference="sample-mean",',
                'reference="sample-mean",\n        profiles={"small": {"trim": 2.0}},',
            ),
        ),
        "small",
    ),
    Defect(
        "recipe-of-nobody",
        "recipes-valid",
        (("recipes/recipe-of-nobody.toml", 'datasets = ["contaminated"]', 'datasets = ["nobody"]'),),
        "nobody",
    ),
    Defect(
        "recipe-broken",
        "recipes-valid",
        (("recipes/recipe-broken.toml", "seeds = [1, 2, 3, 4, 5]", "seeds = 3"),),
        "seeds",
    ),
    Defect(
        "no-smoke-setting",
        "offline-dataset",
        (("plugin.py", 'smoke={"n_observations": 50},', ""),),
        "no offline dataset has a smoke setting",
        forget_scores=True,
    ),
    Defect(
        "unpickles",
        "no-pickle",
        (
            (
                "estimators.py",
                "import numpy as np\n",
                "import numpy as np\n\n\ndef read(path: str) -> object:\n    import pickle\n\n    with open(path, 'rb') as file:\n        return pickle.load(file)\n",
            ),
        ),
        "pickle.load",
    ),
    Defect(
        "prints",
        "no-print",
        (
            (
                "estimators.py",
                "import numpy as np\n",
                "import numpy as np\n\n\ndef talk() -> None:\n    print('hello')\n",
            ),
        ),
        "prints",
    ),
    Defect(
        "no-licence", "metadata", says="declares no licence", last=in_metadata("License-Expression: Apache-2.0\n", "")
    ),
    Defect("untyped", "metadata", says="no py.typed", last=without("py.typed")),
    Defect(
        "caps-core",
        "no-core-cap",
        says="caps icml26",
        last=in_metadata("Requires-Dist: icml26>=0.1.0", "Requires-Dist: icml26>=0.1.0,<1"),
    ),
    Defect(
        "lenient-config",
        "bad-config-refused",
        (
            ("methods.py", "from pydantic import Field", "from pydantic import Field, field_validator"),
            (
                "methods.py",
                'cut off at each end")\n',
                'cut off at each end")\n\n        @field_validator("trim", mode="before")\n        @classmethod\n        def _lenient(cls, value: object) -> float:\n            try:\n                return float(value)  # type: ignore[arg-type]\n            except ValueError:\n                return 0.1\n',
            ),
        ),
        "accepts",
    ),
    Defect("run-raises", "smoke-run", method('raise RuntimeError("boom")'), "boom"),
    Defect("run-exits", "smoke-run", method("raise SystemExit(3)"), "3"),
    Defect("run-dies", "smoke-run", method("os.kill(os.getpid(), 9)", top="import os"), "SIGKILL"),
    Defect("run-hangs", "smoke-run", method("time.sleep(3600)", top="import time"), "does not end within"),
    Defect("wrong-type", "output-type", method("return inputs"), "expects Output"),
    Defect(
        "draws-from-the-system",
        "same-seed-same-output",
        method("return Output(float(np.random.default_rng().standard_normal()))", top="import numpy as np"),
        "another output for the same seed",
        forget_scores=True,
    ),
    Defect(
        "order-of-a-set",
        "same-seed-same-output",
        method(
            'return Output(float(list({"a", "b", "c", "d", "e", "f", "g", "h"}).index("a")) + float(hash("a") % 1000))'
        ),
        "another process",
        forget_scores=True,
    ),
    Defect(
        "deaf-to-seeds",
        "other-seed-other-data",
        (
            (
                "datasets.py",
                "config = self.config\n",
                "import numpy as np\n\n        config, rng = self.config, np.random.default_rng(0)\n",
            ),
            ("datasets.py", "mean = float(ctx.rng.", "mean = float(rng."),
            ("datasets.py", "mean + ctx.rng.standard", "mean + rng.standard"),
            ("datasets.py", "ctx.rng.shuffle", "rng.shuffle"),
        ),
        "the same data",
        forget_scores=True,
    ),
    Defect(
        "seeds-undeclared",
        "other-seed-other-data",
        (("plugin.py", 'smoke={"n_observations": 50},', 'smoke={"n_observations": 50},\n        seeded=False,'),),
        "not seeded",
    ),
    Defect(
        "shares-memory",
        "truth-apart",
        (
            (
                "types.py",
                "    mean: float\n\n\n@dataclass(frozen=True)\nclass Output",
                "    mean: float\n    observations: np.ndarray | None = None\n\n\n@dataclass(frozen=True)\nclass Output",
            ),
            ("datasets.py", "Truth(mean)", "Truth(mean, observations[:5])"),
        ),
        "shares memory",
    ),
    Defect(
        "peeks",
        "truth-unused",
        (
            ("types.py", "    observations: np.ndarray\n", "    observations: np.ndarray\n    peek: object = None\n"),
            (
                "datasets.py",
                "return Problem(Inputs(observations), Truth(mean),",
                "truth = Truth(mean)\n        return Problem(Inputs(observations, lambda: truth.mean), truth,",
            ),
            *method("return Output(inputs.peek())  # type: ignore[operator]"),
        ),
        "truth is garbage",
        forget_scores=True,
    ),
    Defect(
        "sorts-its-inputs",
        "inputs-unchanged",
        method("inputs.observations.sort()\n            " + RUN_MEAN),
        "changes the problem",
    ),
    Defect(
        "scores-nan",
        "metrics-finite",
        (
            ("plugin.py", 'metrics=("absolute-error",)', 'metrics=("absolute-error", "odd")'),
            ("plugin.py", ABSOLUTE_ERROR, ABSOLUTE_ERROR + EXTRA_METRIC.format(name="odd", target="odd")),
            (
                "metrics.py",
                "def absolute_error",
                'def odd(output: Output, truth: Truth) -> float:\n    """Nothing."""\n    return float("nan")\n\n\ndef absolute_error',
            ),
        ),
        "odd is nan",
        forget_scores=True,
    ),
    Defect(
        "wrong-way-round",
        "metric-direction",
        (("plugin.py", 'direction="lower"', 'direction="higher"'),),
        "higher is better",
    ),
    Defect(
        "stores-half",
        "output-stored",
        (("methods.py", 'json.dumps({"mean": output.mean})', 'json.dumps({"mean": round(output.mean, 1)})'),),
        "another output than it saved",
    ),
    Defect(
        "stores-pickle",
        "output-stored",
        (
            (
                "methods.py",
                '"""Write ``output.json``."""\n',
                '"""Write ``output.json``."""\n        import pickle\n\n        (folder / "extra.bin").write_bytes(pickle.dumps(output))\n',
            ),
        ),
        "is a pickle",
    ),
    Defect(
        "cannot-draw",
        "figures-drawn",
        (
            (
                "methods.py",
                'class SampleMean(_Stored):\n    """The baseline."""\n',
                'class SampleMean(_Stored):\n    """The baseline."""\n\n    def visualize(self, problem: object, output: object, ctx: object) -> None:\n        raise KeyError(\'axes\')\n',
            ),
        ),
        "could not be drawn",
    ),
    Defect(
        "writes-here",
        "writes-inside",
        method('Path("result.txt").write_text("x")\n            ' + RUN_MEAN),
        "result.txt",
    ),
    Defect(
        "writes-there",
        "writes-inside",
        method('(Path(__file__).parent / "state.txt").write_text("x")\n            ' + RUN_MEAN),
        "state.txt",
    ),
    Defect(
        "phones-home",
        "no-network",
        method(
            'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))  # a datagram socket: nothing is sent\n            '
            + RUN_MEAN,
            top="import socket",
        ),
        "192.0.2.1",
    ),
    Defect(
        "seeds-the-world",
        "global-rng",
        method("np.random.seed(0)\n            " + RUN_MEAN, top="import numpy as np"),
        "numpy.random",
    ),
    Defect(
        "scores-moved",
        "smoke-scores",
        says="at the same results_version",
        last=in_index(lambda index: index["smoke"]["sample-mean"]["metrics"].update({"absolute-error": 9.0})),
    ),
)


def install(defect: Defect | None, name: str, folder: Path, site: Path) -> None:
    """Generate the template's plugin, damage it, and install it into ``site``."""
    project = new_plugin(Answers(name, "A Paper", "Ada"), folder / name)
    install_editable(site, project)
    package = project / "src" / f"icml26_plugin_{name.replace('-', '_')}"
    for file, old, new in defect.edits if defect else ():
        path = package / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{name}: {old!r} is not in {file}"
        path.write_text(text.replace(old, new), encoding="utf-8")
    if defect and defect.forget_scores:
        in_index(lambda index: index.update(smoke={}))(package, site)


def finish(defect: Defect, folder: Path, site: Path) -> None:
    """The last damage, after the index was written anew."""
    if defect.last:
        module = f"icml26_plugin_{defect.name.replace('-', '_')}"
        defect.last(folder / defect.name / "src" / module, next(site.glob(f"{module}-*.dist-info")))
