"""Questions with answers, and texts, from the user's files: JSON lines, JSON lists, plain text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from icml26.errors import InputError

from icml26_plugin_divergence_decoding.task import QA

SUFFIXES = (".jsonl", ".json")


def find_file(folder: Path, name: str, suffixes: Sequence[str] = SUFFIXES) -> Path:
    """``folder/name`` with the first of ``suffixes`` that exists. Raises InputError naming what is missing."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder")
    for suffix in suffixes:
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    present = ", ".join(sorted(p.name for p in folder.iterdir())[:12]) or "nothing"
    wanted = " or ".join(f"{name}{suffix}" for suffix in suffixes)
    raise InputError(f"{folder} lacks {wanted}; it holds {present}")


def read_records(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, or of one JSON list. Raises InputError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}") from error
    whole = _parsed(path, text, 1) if text.lstrip().startswith("[") else None
    records = list(_lines(path, text)) if whole is None else list(enumerate(whole, start=1))
    for number, record in records:
        if not isinstance(record, dict):
            raise InputError(f"{path}, record {number}: an object with named fields is expected")
    if not records:
        raise InputError(f"{path} is empty")
    return [record for _, record in records]


def _lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: strings may hold other line separators
        if line.strip():
            yield number, _parsed(path, line, number)


def _parsed(path: Path, text: str, first: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{first + error.lineno - 1}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets without end
        raise InputError(f"{path}:{first}: {error}") from error


def as_questions(records: Sequence[dict[str, Any]], where: str, *, perturbed: bool = False) -> tuple[QA, ...]:
    """Rows of TOFU's fields: ``question``, ``answer``, and where they stand ``paraphrased_answer``, ``perturbed_answer``.

    With ``perturbed`` a record without wrong answers is refused. Raises InputError naming ``where``, record and field.
    """
    rows = []
    for number, record in enumerate(records, start=1):
        place = f"{where}, record {number}"
        question, answer = (text_of(record, name, place) for name in ("question", "answer"))
        paraphrased = text_of(record, "paraphrased_answer", place) if record.get("paraphrased_answer") else None
        wrong = record.get("perturbed_answer") or []
        wrong = [wrong] if isinstance(wrong, str) else wrong
        if not isinstance(wrong, list) or not all(isinstance(item, str) and item.strip() for item in wrong):
            raise InputError(f"{place}: perturbed_answer must be a list of texts")
        if perturbed and not wrong:
            raise InputError(f"{place}: perturbed_answer is missing; the truth ratio needs wrong answers")
        rows.append(QA(question, answer, paraphrased, tuple(wrong)))
    return tuple(rows)


def text_of(record: dict[str, Any], name: str, place: str) -> str:
    """A field that must be a text with something in it. Raises InputError naming ``place``."""
    value = record.get(name)
    if value is None:
        raise InputError(f"{place}: the field {name} is missing; there are {', '.join(map(str, record)) or 'none'}")
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{place}: {name} must be a text that is not empty")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{place}: {name} holds half of a character (an unpaired surrogate), which is no text")
    return value


def read_text(path: Path) -> str:
    """A UTF-8 text that is not empty. Raises InputError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}") from error
    if not text.strip():
        raise InputError(f"{path} is empty")
    return text


def read_hub(name: str, part: str, split: str | None, revision: str | None) -> list[dict[str, Any]]:
    """The records of a part (configuration) of a data set on the hub, through the package ``datasets``.

    Raises InputError when the package is missing, and when the hub does not give the part.
    """
    try:
        from datasets import load_dataset  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise InputError(
            "reading from the hub needs the package datasets: pip install 'icml26-plugin-divergence-decoding[hub]'"
        ) from error
    try:
        found = load_dataset(name, part, split=split or "train", revision=revision)
    except Exception as error:
        raise InputError(f"the hub did not give {name}, part {part}: {type(error).__name__}: {error}") from error
    return [dict(record) for record in found]
