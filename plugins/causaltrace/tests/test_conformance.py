import re
from pathlib import Path

from icml26.testing import conformance_tests

test_conformance = conformance_tests("causaltrace")


def test_the_readme_snippet_runs_and_finds_the_attack():
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["analysis"].is_attack and names["analysis"].chain == (0, 1)
