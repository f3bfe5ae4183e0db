"""Files for the user are whole or absent, unwritable places are named, and damaged stored results are refused."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import tiny_model, token_ids
from icml26 import InputError, RunContext
from icml26_plugin_flashtrace import FlashTrace, TraceResult, heatmap
from icml26_plugin_flashtrace.dag_oracle import DagOracle
from icml26_plugin_flashtrace.explainer import load_attribution, save_attribution
from icml26_plugin_flashtrace.methods import FlashTraceMethod
from icml26_plugin_flashtrace.task import Attribution, Inputs, Output


@pytest.fixture(scope="module")
def found() -> TraceResult:
    return FlashTrace(tiny_model()).attribute_ids(token_ids(24), 10)


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return DagOracle(DagOracle.Config(n_examples=2)).load(RunContext(0, stream=0)).inputs


WRITERS = ["to_html", "to_png"]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", ["absent/map", "file/map", "folder", "n" * 300, "a\0b", ""])
def test_places_that_take_no_file_are_refused_and_nothing_is_left(
    found: TraceResult, writer: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"file|written"):
        getattr(found, writer)(place)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_number_for_a_path_is_refused(found: TraceResult, writer: str) -> None:
    with pytest.raises(InputError, match="names no file"):
        getattr(found, writer)(5)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_and_devices_are_not_replaced(found: TraceResult, writer: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no ordinary file"):
        getattr(found, writer)(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("writer", WRITERS)
def test_a_write_that_fails_leaves_the_old_file(
    found: TraceResult, writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "map"
    path.write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        getattr(found, writer)(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_link_is_written_through(found: TraceResult, tmp_path: Path) -> None:
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    found.to_html(tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink() and "<html" in (tmp_path / "real.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["map.png", "map", "map.html", "map.jpg"])
def test_a_picture_is_a_png_under_the_very_name(found: TraceResult, name: str, tmp_path: Path) -> None:
    found.to_png(tmp_path / name)
    assert list(tmp_path.iterdir()) == [tmp_path / name] and (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("title", [5, "\ud800", None])
def test_odd_titles_are_shown_as_text(found: TraceResult, title: Any, tmp_path: Path) -> None:
    found.to_html(tmp_path / "map.html", title=title)
    assert (tmp_path / "map.html").read_text(encoding="utf-8").endswith("</html>\n")


def test_a_picture_of_many_hops_of_a_long_prompt_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer panels are drawn: 65 of 20 lines would be 34,000 dots high."""
    from matplotlib.image import imread

    monkeypatch.setattr(heatmap, "MAX_LINES", 60)
    n, hops = 20, 64
    rows = np.random.default_rng(0).random((hops + 1, n)).astype(np.float32)
    many = Attribution(rows.sum(0), rows, np.ones(1, "f"), np.ones(hops + 1, "f"), np.ones(n + 1, bool))
    heatmap.draw_png(tmp_path / "map.png", ["a\n"] * n + ["b"], n, many)
    assert 1500 < imread(tmp_path / "map.png").shape[0] < 2000  # three panels of 20 lines


def stored(**changes: Any) -> bytes:
    """The file of an attribution of three prompt tokens, two generated ones and one hop, with changes."""
    arrays = {
        "scores": np.ones(3, "f"),
        "hops": np.ones((2, 3), "f"),
        "generation_scores": np.ones(2, "f"),
        "residual_ratios": np.ones(2, "f"),
        "kept": np.ones(5, bool),
        "second_names": np.array(["forward"]),
        "second_values": np.array([1.0]),
        "peak_memory_bytes": np.array(3),
    }
    file = io.BytesIO()
    np.savez(file, **{**arrays, **changes})
    return file.getvalue()


def foreign_zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "x")
    return file.getvalue()


def plain_array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones(3))
    return file.getvalue()


DAMAGED = {
    "empty": b"",
    "cut in half": stored()[:600],
    "cut at the end": stored()[:-10],
    "a bit of an array": stored().replace(np.ones(3, "f").tobytes(), b"\x01" * 12, 1),
    "another archive": foreign_zip(),
    "JSON": b'{"scores": [1, 2, 3]}',
    "an array": plain_array(),
    "scores too short": stored(scores=np.ones(2, "f")),
    "scores as a matrix": stored(scores=np.ones((1, 3), "f")),
    "scores NaN": stored(scores=np.full(3, np.nan, "f")),
    "scores as texts": stored(scores=np.array(["a", "b", "c"])),
    "scores as objects": stored(scores=np.array([None, 1, 2])),
    "scores in float64": stored(scores=np.ones(3)),
    "a hop missing": stored(hops=np.ones((1, 3), "f")),
    "kept as numbers": stored(kept=np.ones(5)),
    "kept too short": stored(kept=np.ones(4, bool)),
    "two peaks": stored(peak_memory_bytes=np.array([1, 2])),
    "times without names": stored(second_values=np.array([1.0, 2.0])),
}


def test_the_undamaged_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(stored())
    assert load_attribution(tmp_path / "a.npz").hops.shape == (2, 3)


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_results_are_refused_by_name(damage: str, inputs: Inputs, tmp_path: Path) -> None:
    path = tmp_path / "00000.npz"
    path.write_bytes(DAMAGED[damage])
    with pytest.raises(InputError, match=r"00000\.npz is not a stored attribution"):
        FlashTraceMethod.load(tmp_path)


def test_outputs_with_parts_missing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a stored output"):
        FlashTraceMethod.load(tmp_path)
    with pytest.raises(InputError, match="not a stored output"):
        FlashTraceMethod.load(tmp_path / "absent")
    (tmp_path / "a.npz").write_bytes(stored())
    one = load_attribution(tmp_path / "a.npz")
    (tmp_path / "a.npz").unlink()
    FlashTraceMethod(FlashTraceMethod.Config()).save(Output((one, one)), tmp_path)
    assert len(FlashTraceMethod.load(tmp_path).attributions) == 2
    (tmp_path / "00000.npz").unlink()
    with pytest.raises(InputError, match="not a stored output"):
        FlashTraceMethod.load(tmp_path)


def test_a_resumed_result_of_another_example_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    method = FlashTraceMethod(FlashTraceMethod.Config(resume=str(tmp_path)))
    method.run(inputs, RunContext(0))
    path = next(tmp_path.glob("*.npz"))
    path.write_bytes(stored())
    with pytest.raises(InputError, match="another example"):
        method.run(inputs, RunContext(0))
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("place", ["file", "file/below", "a\0b"])
def test_resume_folders_that_cannot_be_made_are_refused_before_work(
    place: str, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(FlashTraceMethod, "explain", lambda *a: pytest.fail("work began"))
    with pytest.raises(InputError, match="resume"):
        FlashTraceMethod(FlashTraceMethod.Config(resume=str(tmp_path / place))).run(inputs, RunContext(0))


def test_an_attribution_survives_its_file(tmp_path: Path, found: TraceResult) -> None:
    save_attribution(tmp_path / "a.npz", found.attribution)
    again = load_attribution(tmp_path / "a.npz")
    np.testing.assert_array_equal(again.scores, found.scores)
    assert again.seconds == found.seconds
