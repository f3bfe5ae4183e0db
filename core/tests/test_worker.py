"""The worker's protocol, spoken by hand: one request, several, none that can be read; durations under a wrong clock."""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import toy
from icml26 import processes
from icml26.api import run
from icml26.records import RunRecord
from icml26.worker import Channel, Session
from lab_environment import mischief


def call(python: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [python, "-I", "-m", "icml26.worker", *(str(item) for item in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_one_request_a_process_is_the_special_case(lab_python: str, tmp_path: Path) -> None:
    asked = mischief("speak-protocol")
    path = tmp_path / "request.json"
    path.write_text(json.dumps(asked.to_json()), encoding="utf-8")
    ended = call(lab_python, path, tmp_path / "result")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    record = RunRecord.read(tmp_path / "result" / "record.json")
    assert (record.id, record.status) == (asked.record_id, "succeeded")
    assert '"event": "done"' in (tmp_path / "result" / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "icml26.request/9"}', '{"schema": "icml26.request/1"}'])
def test_a_request_that_cannot_be_read_is_an_exit_code(text: str, lab_python: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(text, encoding="utf-8")
    assert call(lab_python, path, tmp_path / "result").returncode != 0
    assert not (tmp_path / "result" / "record.json").exists()


def test_missing_arguments_are_named(lab_python: str, tmp_path: Path) -> None:
    ended = call(lab_python, tmp_path / "request.json")
    assert (ended.returncode, "REQUEST.json RESULT_DIR" in ended.stderr) == (2, True)


def test_further_requests_come_on_descriptor_four_and_events_go_out_on_three(lab_python: str, tmp_path: Path) -> None:
    first, second = mischief("pid", 1), mischief("pid", 2)
    (tmp_path / "request.json").write_text(json.dumps(first.to_json()), encoding="utf-8")
    (events, events_in), (requests, requests_in) = os.pipe(), os.pipe()
    code = "import os, sys; a, b = map(int, sys.argv[1:3]); os.dup2(a, 213); os.dup2(b, 214); os.dup2(213, 3); os.dup2(214, 4); "
    code += "os.execv(sys.argv[3], sys.argv[3:])"
    command = [lab_python, "-c", code, str(events_in), str(requests), lab_python, "-I", "-m", "icml26.worker"]
    command += [str(tmp_path / "request.json"), str(tmp_path / "one"), "--serve"]
    process = subprocess.Popen(command, pass_fds=(events_in, requests))
    os.close(events_in)
    os.close(requests)
    (tmp_path / "two").mkdir()
    os.write(
        requests_in, json.dumps({"request": second.to_json(), "result_dir": str(tmp_path / "two")}).encode() + b"\n"
    )
    os.close(requests_in)
    with os.fdopen(events) as lines:
        heard = [json.loads(line) for line in lines]
    logs = [(tmp_path / name / "log.txt").read_text(encoding="utf-8") for name in ("one", "two")]
    assert process.wait(60) == 0, logs
    ids = [first.record_id] * 2 + [second.record_id] * 2
    assert [(event["event"], event["id"]) for event in heard] == list(zip(["begin", "done"] * 2, ids, strict=True))
    scores = [RunRecord.read(tmp_path / name / "record.json").value("score") for name in ("one", "two")]
    assert scores[0] == scores[1] == process.pid


def test_a_clock_that_is_set_back_changes_no_duration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = itertools.count(time.time(), -3600.0)
    monkeypatch.setattr("time.time", lambda: next(backwards))
    monkeypatch.setattr("time.time_ns", lambda: int(next(backwards) * 1e9))
    record = run("shift", output=tmp_path, catalog=toy.catalog(), reference=False).record
    assert record.status == "succeeded"
    assert all(0 <= seconds < 60 for seconds in record.seconds.values())


def test_where_a_peak_cannot_be_reset_the_next_record_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_peak_is_old", False)
    session = Session(Channel(None))
    assert session.fit_for_reuse()
    assert (processes.peak_bytes() or 0) > 1 << 20
    monkeypatch.setattr(processes.Path, "write_text", _refuse)
    assert session.fit_for_reuse()
    monkeypatch.undo()
    monkeypatch.setattr(processes, "_peak_is_old", True)
    record = run("shift", output=tmp_path, catalog=toy.catalog(), reference=False).record
    assert (record.status, record.peak_memory_bytes) == ("succeeded", None)


def _refuse(*arguments: object, **options: object) -> int:
    raise OSError(errno.EACCES, "Permission denied")


def test_children_are_found_where_the_kernel_does_not_list_them() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        found = processes._children_by_scan(os.getpid())
        assert child.pid in found
        assert sorted(found) == sorted(processes.children(os.getpid()))
    finally:
        child.kill()
        child.wait()
