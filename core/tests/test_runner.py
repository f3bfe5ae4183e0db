"""One run in this process."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from icml26.api import RunResult, run, writable_folder
from icml26.context import STREAM_DATASET, STREAM_METHOD, RunContext
from icml26.errors import EnvironmentError_, InputError, PluginError
from icml26.fingerprints import fingerprint
from icml26.records import RunRecord


def run_toy(method: str = "shift", folder: Path | None = None, **more: Any) -> RunResult:
    return run(method, output=folder, catalog=toy.catalog(), **more)


def test_a_run_scores_saves_draws_and_records(tmp_path: Path) -> None:
    result = run_toy(folder=tmp_path, config={"shift": 0.5}, seed=3)
    record = result.record
    assert record.status == "succeeded"
    assert record.value("error") == pytest.approx(0.5)
    assert record.metrics["error"]["unit"] == "units"
    assert record.metrics["error"]["direction"] == "lower"
    assert record.artifacts == ["total.txt"]
    assert toy.Shift.load(result.folder / "output").total == result.output.total
    assert record.curves == "curves.jsonl"
    points = [json.loads(line) for line in (result.folder / "curves.jsonl").read_text().splitlines()]
    assert points[-1] == {"name": "loss", "value": pytest.approx(1 / 3), "step": 2}
    assert RunRecord.read(result.folder / "record.json") == record
    assert set(record.seconds) == {"load", "run", "score", "visualize"}
    assert record.info["problem"] == {"n": 5}


def test_the_reference_runs_beside_it_on_the_same_problem_with_its_own_defaults(tmp_path: Path) -> None:
    result = run_toy(folder=tmp_path, config={"shift": 1.0, "steps": 1})
    assert result.reference is not None
    reference = result.reference.record
    assert reference.method["name"] == "toy/plain"
    assert reference.method["config"]["shift"] == 0.0
    assert reference.method["config"]["steps"] == 3
    assert reference.dataset["fingerprint"] == result.record.dataset["fingerprint"]
    assert result.record.metrics["gain"] == {
        "value": -1.0,
        "unit": None,
        "direction": "higher",
        "relative_to": reference.id,
    }
    assert RunRecord.read(result.folder / "record.json").value("gain") == -1.0


def test_without_a_reference_what_is_relative_is_left_out(tmp_path: Path) -> None:
    result = run_toy(folder=tmp_path, reference=False)
    assert result.reference is None
    assert "gain" not in result.record.metrics


def test_same_seed_same_result_other_seed_other_data(tmp_path: Path) -> None:
    first, again, other = (run_toy(folder=tmp_path, seed=seed, reference=False) for seed in (1, 1, 2))
    assert fingerprint(first.output) == fingerprint(again.output)
    assert first.record.dataset["fingerprint"] == again.record.dataset["fingerprint"]
    assert first.record.dataset["fingerprint"] != other.record.dataset["fingerprint"]
    assert first.record.key == again.record.key
    assert first.record.id < again.record.id


def test_streams_of_a_seed_are_numpys_own(tmp_path: Path) -> None:
    result = run_toy(folder=tmp_path, seed=5, reference=False)
    assert result.problem is not None
    expected = np.random.default_rng((5, STREAM_DATASET)).standard_normal(5)
    np.testing.assert_array_equal(result.problem.inputs.x, expected)
    assert result.output.draw == np.random.default_rng((5, STREAM_METHOD)).standard_normal()
    assert result.record.value("parts.draw") == np.random.default_rng((5, 2)).standard_normal()


def test_torch_seed_comes_from_the_same_sequence() -> None:
    expected = int(np.random.SeedSequence((7, 1)).generate_state(1, "uint64")[0]) >> 1
    assert RunContext(7).torch_seed() == expected


def test_an_oracle_is_told_the_truth(tmp_path: Path) -> None:
    result = run_toy("told", tmp_path)
    assert result.record.value("error") == 0.0
    assert result.record.method["role"] == "oracle"


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("raise", "failed", "boom"),
        ("exit", "failed", "7"),
        ("refuse", "refused", "column 'x' holds NaN in row 3"),
        ("memory", "out-of-memory", "MemoryError"),
        ("type", "failed", "returned str; task toy.sum expects Output"),
    ],
)
def test_every_failure_is_a_record_that_says_why(tmp_path: Path, fault: str, status: str, message: str) -> None:
    record = run_toy(folder=tmp_path, config={"fault": fault}).record
    assert record.status == status
    assert record.error is not None
    assert message in record.error["message"]
    assert RunRecord.read(tmp_path / record.id / "record.json").status == status


def test_interrupt_is_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(toy.Shift, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_toy(folder=tmp_path)
    (record,) = tmp_path.glob("*/record.json")
    assert RunRecord.read(record).status == "killed"


def test_values_that_are_not_finite_survive(tmp_path: Path) -> None:
    result = run_toy(folder=tmp_path, config={"fault": "nan"}, reference=False)
    assert result.record.metrics["error"]["value"] is None
    assert result.record.metrics["error"]["nonfinite"] == "nan"
    text = (result.folder / "record.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))
    assert np.isnan(RunRecord.read(result.folder / "record.json").value("error"))


def test_a_method_that_changes_its_inputs_is_told_on(tmp_path: Path) -> None:
    result = run_toy(folder=tmp_path, config={"fault": "mutate"})
    assert "changed its inputs" in result.record.info["warnings"][0]
    assert result.reference is not None
    assert result.reference.record.value("error") == 0.0  # it got a fresh problem


def test_a_figure_that_fails_does_not_lose_the_scores(tmp_path: Path) -> None:
    record = run_toy(folder=tmp_path, config={"fault": "visualize"}).record
    assert record.status == "succeeded"
    assert "no canvas" in record.info["warnings"][0]
    assert record.value("error") == 2.0


def test_cross_field_rules_are_checked_before_data_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy.Numbers, "load", lambda *_: pytest.fail("data was loaded"))
    record = run_toy(folder=tmp_path, config={"kind": "square", "shift": -1}).record
    assert record.status == "refused"
    assert record.error is not None
    assert "kind 'square' needs shift >= 0" in record.error["message"]


def test_a_file_that_changes_after_planning_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("1\n2\n")
    import icml26.runner

    honest = icml26.runner.run_request

    def late(*args: Any, **kwargs: Any) -> Any:
        numbers.write_text("1\n3\n")
        return honest(*args, **kwargs)

    monkeypatch.setattr(icml26.runner, "run_request", late)
    record = run_toy(folder=tmp_path, dataset_config={"path": str(numbers)}, reference=False).record
    assert record.status == "refused"
    assert "changed after the run was planned" in (record.error or {})["message"]


def test_an_unwritable_folder_is_refused_before_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentError_, match="cannot be written"):
        run_toy(folder=tmp_path / "file" / "runs")


def test_metric_options_reach_the_metric(tmp_path: Path) -> None:
    plain, scaled = (
        run_toy(folder=tmp_path, reference=False, metric_config={"parts": {"scale": scale}}) for scale in (1.0, 3.0)
    )
    assert scaled.record.value("parts.draw") == pytest.approx(3 * (plain.record.value("parts.draw") or 0))


def test_no_global_random_state_is_touched(tmp_path: Path) -> None:
    before = fingerprint(np.random.get_state())
    run_toy(folder=tmp_path)
    assert fingerprint(np.random.get_state()) == before


def test_log_of_a_run_lies_beside_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy.Shift, "visualize", lambda self, p, o, ctx: ctx.logger.warning("look here"))
    before = list(logging.getLogger().handlers)
    result = run_toy(folder=tmp_path, reference=False)
    assert result.record.log == "log.txt"
    assert "look here" in (result.folder / "log.txt").read_text()
    assert logging.getLogger().handlers == before


@pytest.mark.parametrize("name", ["../x", "/x", "a/b/c", "", ".hidden", "a\0b", "x" * 200])
def test_artifacts_stay_in_the_runs_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(PluginError, match="artifact name"):
        RunContext(folder=tmp_path).artifact(name)


def test_progress_reports_every_step_and_knows_the_total() -> None:
    seen: list[Any] = []

    class Reporter:
        def progress(self, label: str, done: int, total: int | None) -> None:
            seen.append((label, done, total))

        def log(self, name: str, value: float, step: int | None) -> None:
            pass

    assert list(RunContext(reporter=Reporter()).progress("ab", "letters")) == ["a", "b"]
    assert seen == [("letters", 0, 2), ("letters", 1, 2), ("letters", 2, 2)]


def test_cached_folders_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from icml26.datacache import cached_folder

    built: list[Path] = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "x").write_text("1")

    folder = cached_folder("k", "data", build, root=tmp_path)
    assert cached_folder("k", "data", build, root=tmp_path) == folder
    assert len(built) == 1
    (folder.parent / "data.ready").unlink()  # as a killed build leaves it
    cached_folder("k", "data", build, root=tmp_path)
    assert len(built) == 2


def cached_context(seed: int, config: dict[str, Any] | None = None, revision: str = "1") -> RunContext:
    from icml26.datacache import folder_cache

    return RunContext(seed, stream=STREAM_DATASET, cache=folder_cache("p/d", config or {}, revision, seed))


def test_a_folder_without_seed_is_shared_by_seeds_and_by_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICML26_HOME", str(tmp_path))
    built: list[Path] = []

    def folder(seeded: bool, *args: Any) -> Path:
        return cached_context(*args).cached("x", built.append, seeded=seeded)

    shared = folder(False, 0)
    assert folder(False, 1) == shared
    assert len(built) == 1
    others = [folder(True, 0), folder(True, 1), folder(False, 0, {"n": 2}), folder(False, 0, {}, "2")]
    assert len({shared, *others}) == len(built) == 5


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx: ctx.rng,
        lambda ctx: ctx.seed,
        lambda ctx: ctx.torch_seed(),
        lambda ctx: ctx.torch_generator(),
        lambda ctx: ctx.for_stream(STREAM_METHOD),
    ],
)
def test_a_build_that_is_shared_by_all_seeds_may_not_ask_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[RunContext], Any]
) -> None:
    monkeypatch.setenv("ICML26_HOME", str(tmp_path))
    context = cached_context(3)
    for _ in range(2):  # nothing is kept of a build that was refused
        with pytest.raises(PluginError, match="shared by all seeds"):
            context.cached("x", lambda folder: ask(context), seeded=False)
    assert context.seed == 3
    context.cached("x", lambda folder: None, seeded=False)


def test_a_shared_build_may_not_draw_from_a_generator_taken_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICML26_HOME", str(tmp_path))
    context = cached_context(3)
    rng = context.rng
    with pytest.raises(PluginError, match="shared by all seeds"):
        context.cached("x", lambda folder: (folder / "x").write_text(str(rng.random())), seeded=False)
    context.cached("seeded", lambda folder: (folder / "x").write_text(str(rng.random())))
    context.cached("x", lambda folder: None, seeded=False)


def test_refusals_are_usage_errors_for_the_exit_code() -> None:
    assert InputError("x").exit_code == 2


def test_runs_are_in_the_store_and_a_known_reference_is_not_run_again(tmp_path: Path) -> None:
    from icml26.store import Store

    file = tmp_path / "store.sqlite3"
    first, second = (run_toy(folder=tmp_path, store=file, config={"shift": shift}) for shift in (1.0, 2.0))
    assert first.reference is not None
    assert second.reference is not None
    assert second.reference.record.id == first.reference.record.id
    assert second.record.value("gain") == -2.0
    with Store.open(file, readonly=True) as store:
        assert store.count() == 3
        stored = store.get(second.record.id)
    assert stored == second.record


def test_a_stored_reference_that_lacks_a_score_is_run_again(tmp_path: Path) -> None:
    run_toy(folder=tmp_path, metrics=["gain"])
    result = run_toy(folder=tmp_path)
    assert result.reference is not None
    assert "parts.draw" in result.reference.record.metrics


@pytest.mark.skipif(os.name != "posix", reason="file names are text there")
def test_a_folder_whose_name_is_no_text_is_refused_before_work(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"runs\xff")
    with pytest.raises(EnvironmentError_, match="not UTF-8"):
        writable_folder(folder)
    assert not folder.exists()


def test_a_failed_proof_of_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: Any, **__: Any) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(EnvironmentError_, match="No space left"):
        writable_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_result_is_shown_in_one_line(tmp_path: Path) -> None:
    result = run("plain", output=tmp_path / "runs", store=tmp_path / "store.sqlite3", catalog=toy.catalog())
    assert repr(result).startswith("<RunResult plain on numbers, seed 0: succeeded; error=")
    assert len(repr(result)) < 200
