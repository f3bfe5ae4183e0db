"""The user's own table: one row an example, one column the target. Read by ``read_table``, split by ``Table``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from icml26.dataset import DatasetConfig
from icml26.errors import InputError
from icml26.task import Problem
from icml26.tasks.columns import ColumnFile, open_columns, shorten
from icml26.tasks.tabular import Inputs, Truth

Unseen = Literal["refuse", "drop"]

_TEXT_ADVICE = "correct it, list the column in categorical if it holds labels, or leave it out with drop"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table that was read whole. ``X`` (n, d) and ``y`` (n,) are finite float64; ``lines`` (n,) are the rows' places.

    ``categorical`` are column indices of ``X`` and ``categories`` their labels, sorted: a cell holds its label's
    index among all rows until ``problem`` codes it by the training rows. ``split_labels`` is the split column.
    """

    path: Path
    target: str
    X: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    categorical: tuple[int, ...]
    categories: tuple[tuple[str, ...], ...]
    sample_weight: np.ndarray | None
    split_labels: tuple[str, ...] | None
    split_column: str | None
    unit: str
    lines: np.ndarray

    def labelled_split(self, train_label: str, test_label: str) -> tuple[np.ndarray, np.ndarray]:
        """(train, test) row indices by the split column. Raises InputError for another label and for an empty part."""
        if self.split_labels is None or self.split_column is None:
            raise InputError(f"{self.path}: no split column was read; set split_column")
        labels = np.array(self.split_labels)
        other = np.flatnonzero((labels != train_label) & (labels != test_label))
        if len(other):
            row = int(other[0])
            raise InputError(
                f"{self._place(row, self.split_column)}: {shorten(str(labels[row]))} is neither "
                f"{train_label!r} (train_label) nor {test_label!r} (test_label)"
            )
        train, test = np.flatnonzero(labels == train_label), np.flatnonzero(labels == test_label)
        for part, label in ((train, train_label), (test, test_label)):
            if not len(part):
                raise InputError(f"{self.path}: no row has {label!r} in the column {self.split_column!r}")
        return train, test

    def problem(self, train: np.ndarray, test: np.ndarray, *, unseen: Unseen = "refuse") -> Problem[Inputs, Truth]:
        """The problem of these rows, with categories coded 0, 1, … in the sorted order of the training rows' labels.

        A test row with a category that no training row has is refused (InputError) or dropped, as ``unseen`` says.
        """
        X_train, X_all_test = self.X[train], self.X[test]
        keep = np.ones(len(test), dtype=bool)
        coded = X_all_test.copy()
        labels: dict[str, list[str]] = {}
        for column, names in zip(self.categorical, self.categories, strict=True):
            present = np.unique(X_train[:, column])
            known = np.isin(X_all_test[:, column], present)
            if unseen == "refuse" and not known.all():
                self._refuse_unseen(int(test[np.argmin(known)]), column, names)
            keep &= known
            X_train[:, column] = np.searchsorted(present, X_train[:, column])
            coded[:, column] = np.searchsorted(present, coded[:, column])
            labels[self.feature_names[column]] = [names[int(code)] for code in present]
        if not keep.any():
            raise InputError(f"{self.path}: every test row has a category that no training row has; split differently")
        inputs = Inputs(
            X=X_train,
            y=self.y[train],
            feature_names=self.feature_names,
            categorical=self.categorical,
            sample_weight=None if self.sample_weight is None else self.sample_weight[train],
        )
        truth = Truth(X_test=coded[keep], y_test=self.y[test][keep], X_train=X_train.copy(), y_train=self.y[train])
        info = {
            "file": self.path.name,
            "target": self.target,
            "n_train": len(train),
            "n_test": int(keep.sum()),
            "n_features": len(self.feature_names),
            "categories": labels,
            "dropped_test_rows": int((~keep).sum()),
        }
        return Problem(inputs, truth, info)

    def _refuse_unseen(self, row: int, column: int, names: tuple[str, ...]) -> None:
        name = names[int(self.X[row, column])]
        raise InputError(
            f"{self._place(row, self.feature_names[column])}: the category {shorten(name)} is in a test row but in no "
            "training row; set unseen='drop' to leave such test rows out, or split differently"
        )

    def _place(self, row: int, column: str) -> str:
        return f"{self.path}: {self.unit} {self.lines[row]}, column {column!r}"


def random_split(n: int, test_fraction: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(train, test) row indices, increasing: round(n · fraction) test rows, at least one and not all.

    Raises InputError for a single row.
    """
    if n < 2:
        raise InputError("one row cannot be split into training and test rows")
    n_test = min(max(round(n * test_fraction), 1), n - 1)
    order = rng.permutation(n)
    return np.sort(order[n_test:]), np.sort(order[:n_test])


def read_table(
    path: str | Path,
    *,
    target: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    weight: str | None = None,
    split_column: str | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
) -> Table:
    """Read a CSV, Parquet or NPZ file.

    ``features`` (default: every column that has no other role and is not in ``drop``) must hold numbers, except the
    ``categorical`` ones, whose cells are labels. ``weight`` names the column of sample weights, ``split_column`` the one
    that says which rows are for training. Raises InputError, with column and line, for everything that cannot be used
    as it stands: missing and infinite values, text, columns that are not there or are named twice, damaged files.
    """
    path = Path(path)
    check_roles(target, features, drop, categorical, weight, split_column)
    file = open_columns(path, delimiter=delimiter, encoding=encoding, text_advice=_TEXT_ADVICE)
    others = [name for name in (target, weight, split_column) if name is not None]
    chosen = _features(file, others, features, drop, categorical)
    texts = [name for name in chosen if name in categorical]
    numbers = [name for name in chosen if name not in categorical]
    columns = file.read(
        [*numbers, target, *([weight] if weight else [])], [*texts, *([split_column] if split_column else [])]
    )
    columns.refuse_missing("fill it in, or remove the row or the column")

    X = np.empty((len(columns.lines), len(chosen)))
    categories = []
    for index, name in enumerate(chosen):
        if name in categorical:
            labels = sorted(set(columns.texts[name]))
            codes = {text: code for code, text in enumerate(labels)}
            X[:, index] = [codes[text] for text in columns.texts[name]]
            categories.append(tuple(labels))
        else:
            X[:, index] = columns.number(name)
    weights = columns.number(weight).copy() if weight else None
    if weight and weights is not None and (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise InputError(f"{columns.place(row, weight)}: a weight must not be negative, got {weights[row]:g}")
    return Table(
        path=path,
        target=target,
        X=X,
        y=columns.number(target).copy(),
        feature_names=tuple(chosen),
        categorical=tuple(index for index, name in enumerate(chosen) if name in categorical),
        categories=tuple(categories),
        sample_weight=weights,
        split_labels=tuple(columns.texts[split_column]) if split_column else None,
        split_column=split_column,
        unit=columns.unit,
        lines=columns.lines,
    )


def check_roles(
    target: str,
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    weight: str | None,
    split_column: str | None,
) -> None:
    """Raise InputError when one column is given two roles that exclude each other, or is listed twice."""
    roles: dict[str, str] = {}
    listed: dict[str, Sequence[str | None]] = {
        "target": [target],
        "weight": [weight],
        "split_column": [split_column],
        "drop": drop,
        "features": features or (),
    }
    for role, names in listed.items():
        for name in names:
            if name is None:
                continue
            if name in roles:
                raise InputError(f"column {name!r} is given twice: as {roles[name]} and as {role}")
            roles[name] = role
    for name in categorical:
        if roles.get(name, "features") != "features":
            raise InputError(f"column {name!r} is given twice: as {roles[name]} and as categorical")
        if list(categorical).count(name) > 1:
            raise InputError(f"column {name!r} is listed twice in categorical")
        if features is not None and name not in features:
            raise InputError(f"column {name!r} is listed in categorical but not in features")
    if features is not None and not features:
        raise InputError("features is an empty list; leave it out to use all columns")


def _features(
    file: ColumnFile,
    others: Sequence[str],
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
) -> list[str]:
    file.require(others[:1], "target")
    file.require(others[1:], "weight, split_column")
    file.require(features or (), "features")
    file.require(drop, "drop")
    file.require(categorical, "categorical")
    chosen = [name for name in file.names if name not in others and name not in drop] if features is None else features
    if not chosen:
        raise InputError(f"{file.path}: no column is left as a feature; its columns are {', '.join(file.names)}")
    return list(chosen)


class TableFileConfig(DatasetConfig):
    """Options of a dataset that reads the user's table; ``read()`` reads it. Mark ``files=("path",)`` in the spec."""

    path: Path = Field(description="The file: .csv, .tsv (also .gz), .parquet or .npz")
    target: str = Field(min_length=1, description="The column to predict")
    features: tuple[str, ...] | None = Field(
        default=None, description="The columns to predict from; default: all others"
    )
    drop: tuple[str, ...] = Field(default=(), description="Columns to leave out, such as an identifier")
    categorical: tuple[str, ...] = Field(default=(), description="Features whose cells are labels, not numbers")
    weight: str | None = Field(default=None, description="A column of sample weights")
    split_column: str | None = Field(
        default=None, description="A column that says which rows are for training and which for test"
    )
    delimiter: str | None = Field(
        default=None, description="What separates cells of a text file: one character, or 'tab'"
    )
    encoding: str = Field(default="utf-8", description="The text encoding of a CSV file")

    @model_validator(mode="after")
    def _one_role_each(self) -> TableFileConfig:
        try:
            check_roles(self.target, self.features, self.drop, self.categorical, self.weight, self.split_column)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    def read(self) -> Table:
        """Read the table; raises InputError as ``read_table`` does."""
        return read_table(
            self.path,
            target=self.target,
            features=self.features,
            drop=self.drop,
            categorical=self.categorical,
            weight=self.weight,
            split_column=self.split_column,
            delimiter=self.delimiter,
            encoding=self.encoding,
        )
