"""Heat maps show every token as text, whatever it holds, and need no network."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from icml26_plugin_flashtrace import heatmap
from icml26_plugin_flashtrace.task import Attribution

HOSTILE = ["</script><script>alert(1)</script>", "<!--", "&lt;", "\u2028", "\ud800", "\u202eevil", '"', "\\", "\x00"]
HOSTILE += ["日本", "$x^2$", ""]


def attribution(n_prompt: int, n_generated: int, hops: int = 2) -> Attribution:
    rng = np.random.default_rng(0)
    rows = rng.random((hops, n_prompt)).astype(np.float32)
    generated = rng.random(n_generated).astype(np.float32)
    kept = np.ones(n_prompt + n_generated, dtype=bool)
    return Attribution(rows.sum(0), rows, generated, np.full(hops, 0.5, np.float32), kept)


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_hostile_tokens_stay_text() -> None:
    tokens = [*HOSTILE, "a", "b"]
    page = heatmap.html_page(tokens, len(HOSTILE), attribution(len(HOSTILE), 2), title="<i>x</i></title>")
    page.encode("utf-8")
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "<i>x" not in page and "<!--" not in page
    shown = data_of(page)["tokens"]
    assert shown == [token if token != "\ud800" else "?" for token in tokens]


def test_the_page_holds_every_hop_and_score() -> None:
    found = attribution(3, 2)
    gold = np.array([True, False, True])
    data = data_of(heatmap.html_page(["a", " b", "\n", "c", "d"], 3, found, gold=gold, output_span=(1, 1)))
    views = data["views"]
    assert [view["name"] for view in views] == ["All", "Hop 0", "Hop 1"]  # type: ignore[attr-defined]
    assert np.allclose(views[0]["prompt"], found.scores, rtol=1e-5)  # type: ignore[index]
    assert np.allclose(views[2]["prompt"], found.hops[1], rtol=1e-5)  # type: ignore[index]
    assert views[2]["generation"] is None  # type: ignore[index]
    assert data["gold"] == [True, False, True] and data["output_span"] == [1, 1]


def test_the_page_loads_nothing_from_elsewhere() -> None:
    page = heatmap.html_page(["a", "b"], 1, attribution(1, 1))
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|fetch\(|https?://", page)


def test_scores_that_are_not_finite_do_not_break_the_page() -> None:
    found = attribution(2, 1, hops=1)
    found.scores[0] = np.nan
    assert data_of(heatmap.html_page(["a", "b", "c"], 2, found))["views"][0]["prompt"][0] == 0.0  # type: ignore[index]


def test_the_picture_shades_in_proportion_to_the_root_of_the_score(tmp_path: Path) -> None:
    from matplotlib.image import imread

    row = np.zeros((1, 40), dtype=np.float32)
    row[0, 10] = 1.0
    kept = np.ones(41, dtype=bool)
    found = Attribution(row[0], row, np.zeros(1, np.float32), np.zeros(1, np.float32), kept)
    path = tmp_path / "map.png"
    heatmap.draw_png(path, ["xx"] * 41, 40, found)
    image = imread(path)[..., :3]
    heated = (image[..., 0] > 0.8) & (image[..., 2] < 0.4)
    columns = np.flatnonzero(heated.sum(axis=0) > 5) / image.shape[1]
    assert 0.19 < columns.min() < columns.max() < 0.24  # characters 20 and 21 of a line of 110


def test_the_picture_takes_hostile_tokens_and_drops_what_is_too_much(tmp_path: Path) -> None:
    heatmap.draw_png(tmp_path / "a.png", [*HOSTILE, "g"], len(HOSTILE), attribution(len(HOSTILE), 1), title="$\\frac{$")
    n = heatmap.MAX_DRAWN + 500
    found = attribution(n, 1, hops=1)
    kept = heatmap._drawn(found, n)
    assert len(kept) == heatmap.MAX_DRAWN and (np.diff(kept) > 0).all()
    assert found.scores[kept].min() >= np.delete(found.scores, kept).max()
