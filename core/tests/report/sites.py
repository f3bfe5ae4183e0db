"""Made-up records with folders, for tests of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icml26.records import RunRecord
from made_up import record

HOSTILE = "<script>window.pwned = 1</script><img src=x onerror='window.pwned=2'>\"'&{{ 7123*7321 }}\u2028$\\frac{"


def folder_of(base: Path, made: RunRecord, *, log: str = "one line\n", steps: int = 12) -> Path:
    """A run's folder with log, curves and a picture; the record says so."""
    folder = base / made.id
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text(log, encoding="utf-8")
    points = [{"name": "train-loss", "value": 1 / (step + 1), "step": step} for step in range(steps)]
    (folder / "curves.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    (folder / "picture.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><circle r="2"/></svg>'
    )
    made.log, made.curves, made.artifacts = "log.txt", "curves.jsonl", ["picture.svg"]
    return folder


def forecasting(base: Path, seeds: int = 4) -> list[tuple[RunRecord, Path | None]]:
    """A task with two datasets and five methods, one of which fails at times."""
    methods = [
        ("tg/ours", "paper", 1.0),
        ("tg/none", "reference", 3.0),
        ("tg/abl", "baseline", 2.0),
        ("tg/clean", "oracle", 0.5),
    ]
    found: list[tuple[RunRecord, Path | None]] = []
    for dataset in ("tg/traffic", "tg/pems"):
        for name, role, level in methods:
            for seed in range(seeds):
                made = record(
                    name,
                    dataset,
                    seed,
                    role=role,
                    task="forecasting.defense",
                    status="timed-out" if name == "tg/abl" and seed == 3 else "succeeded",
                    metrics={"mae": level + 0.1 * seed, "cost": 10 * level + seed},
                    config={"beta": level},
                    dataset_config={"n": 100},
                )
                found.append((made, folder_of(base, made)))
    return found


def hostile(base: Path) -> list[tuple[RunRecord, Path | None]]:
    """Records whose every text is an attack."""
    found: list[tuple[RunRecord, Path | None]] = []
    for number, name in enumerate((f"evil/{HOSTILE}", "evil/other")):
        for status in ("succeeded", "failed"):
            made = record(
                name,
                f"evil/{HOSTILE}",
                number,
                task=HOSTILE,
                status=status,
                metrics={HOSTILE: 1.0 + number, "second": 2.0},
                config={HOSTILE: HOSTILE, "list": [HOSTILE]},
                dataset_config={"x": HOSTILE},
                info={"problem": {HOSTILE: HOSTILE}, "warnings": [HOSTILE]},
            )
            for entry in made.metrics.values():
                entry["unit"] = HOSTILE
            made.provenance |= {
                "host": HOSTILE,
                "libraries": {HOSTILE: HOSTILE},
                "distributions": {HOSTILE: {"version": HOSTILE}},
            }
            made.method["profile"] = HOSTILE
            if made.error is not None:
                made.error = {"type": HOSTILE, "message": HOSTILE, "traceback": HOSTILE, "signal": HOSTILE}
            folder = folder_of(base, made, log=HOSTILE + "\n")
            (folder / "curves.jsonl").write_text(json.dumps({"name": HOSTILE, "value": 1.0, "step": 0}) + "\n")
            found.append((made, folder))
    return found


def reproduction(records: list[tuple[RunRecord, Path | None]], text: str = "the claim") -> Mapping[str, Any]:
    """A document as ``icml26 reproduce`` keeps it."""
    claim = {
        "id": "resists", "text": text, "paper": text, "measured": 2.31, "interval": [1.9, 2.8], "n": 4, "must": True,
        "holds": True, "state": "holds", "as": "ratio", "metric": "mae", "of": "ours", "over": "none", "on": "traffic",
        "unit": None, "at_least": 2.0, "at_most": None,
    }  # fmt: skip
    cells = [
        {"method": made.method["name"], "dataset": made.dataset["name"], "seed": made.seed, "record": made.id}
        for made, _ in records
    ]
    return {
        "schema": "icml26.reproduce/1", "recipe": text, "title": text, "finished": "2026-08-01T10:00:00Z",
        "claims": [claim, {**claim, "id": "other", "state": "void", "holds": None, "measured": None, "interval": None}],
        "preconditions": [], "cells": cells, "figures": [{"x": "beta", "y": "mae", "by": "method", "title": text}],
    }  # fmt: skip
