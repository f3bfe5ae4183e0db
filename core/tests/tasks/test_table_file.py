"""Tables of users: what is read, and what is refused with the place and a way out."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from icml26.errors import InputError
from icml26.tasks.table_file import random_split
from icml26.tasks.tabular import Table, TableFileConfig, read_table
from pydantic import ValidationError

GOOD = "size,town,price\n10,Ulm,1.5\n20,Bonn,2\n10,Ulm,1.5\n"


def write(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder: Path, content: str | bytes, **options: Any) -> Table:
    return read_table(write(folder, content), **({"target": "price"} | options))


def test_a_table_is_read_with_codes_in_sorted_order_and_duplicate_rows_kept(tmp_path: Path) -> None:
    table = read(tmp_path, GOOD, categorical=["town"])
    assert table.feature_names == ("size", "town")
    assert table.X.tolist() == [[10, 1], [20, 0], [10, 1]]
    assert table.y.tolist() == [1.5, 2, 1.5]
    assert (table.categorical, table.categories) == ((1,), (("Bonn", "Ulm"),))
    assert table.lines.tolist() == [2, 3, 4]
    assert table.X.dtype == table.y.dtype == np.float64


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"\xef\xbb\xbf" + GOOD.encode(), {}),
        (GOOD.replace("\n", "\r\n"), {}),
        (GOOD.replace("\n", "\r"), {}),
        (GOOD.rstrip("\n"), {}),
        (GOOD + "\n\n", {}),
        (GOOD.replace(",", ";"), {"delimiter": ";"}),
        (GOOD.replace(",", "\t"), {"delimiter": "tab"}),
        (GOOD.replace(",", ", "), {}),
        (GOOD.replace("Ulm", '"Ulm"').replace("town", '"town"'), {}),
        (GOOD.encode("utf-16"), {"encoding": "utf-16"}),
        (GOOD.encode("latin-1"), {"encoding": "latin-1"}),
        (GOOD.replace("10", "1e1").replace("1.5", "+1.50"), {}),
    ],
)
def test_ways_of_writing_one_table_give_the_same_numbers(
    tmp_path: Path, content: str | bytes, options: dict[str, Any]
) -> None:
    expected = read(tmp_path, GOOD, categorical=["town"])
    found = read(tmp_path, content, categorical=["town"], **options)
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    assert found.categories == expected.categories


def test_tab_separated_and_gzipped_files_go_by_their_suffix(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(GOOD.replace(",", "\t").encode()), "t.tsv.gz")
    assert read_table(path, target="price", categorical=["town"]).X.shape == (3, 2)


def test_a_quoted_cell_may_hold_line_breaks_and_the_lines_after_it_are_counted(tmp_path: Path) -> None:
    content = 'size,town,price\n1,"two\nlines",3\n2,x,oops\n'
    with pytest.raises(InputError, match="line 4, column 'price': 'oops'"):
        read(tmp_path, content, categorical=["town"])


def test_a_quoted_cell_after_a_space_is_one_cell(tmp_path: Path) -> None:
    table = read(tmp_path, 'size, town, price\n1, "Ulm, a. d. Donau", 2\n', categorical=["town"])
    assert table.categories == (("Ulm, a. d. Donau",),)


def test_na_is_a_label_where_labels_are_expected(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD.replace("Bonn", "NA"), categorical=["town"]).categories == (("NA", "Ulm"),)


def test_features_drop_and_weight_choose_columns(tmp_path: Path) -> None:
    content = "id,a,b,w,y\nr1,1,2,1,5\nr2,3,4,0,6\n"
    table = read(tmp_path, content, target="y", drop=["id"], weight="w")
    assert table.feature_names == ("a", "b")
    assert table.sample_weight is not None and table.sample_weight.tolist() == [1, 0]
    ordered = read(tmp_path, content, target="y", features=["b", "a"])
    assert ordered.X.tolist() == [[2, 1], [4, 3]]


REFUSED: list[tuple[str, str | bytes, dict[str, Any], str]] = [
    ("empty file", "", {}, "the file is empty"),
    ("empty first line", "\n1,2,3\n", {}, "line 1 is empty"),
    ("header only", "size,price\n", {}, "no rows"),
    ("no header", "1.5,2.5\n3,4\n", {}, "line 1 holds numbers, not column names"),
    ("missing value", "size,price\n1,2\n,3\n", {}, r"line 3, column 'size': the value is missing"),
    ("NA", "size,price\n1,NA\n", {}, "line 2, column 'price': the value is missing"),
    ("nan", "size,price\n1,2\n1,2\nNaN,2\n", {}, "line 4, column 'size': the value is missing"),
    ("infinite", "size,price\n1,2\n-inf,3\n", {}, "line 3, column 'size': -inf is not finite"),
    ("overflow", "size,price\n1,1e999\n", {}, "line 2, column 'price': inf is not finite"),
    ("text", GOOD, {}, r"line 2, column 'town': 'Ulm' is not a number; .*categorical"),
    ("text target", "size,price\n1,cheap\n", {}, "line 2, column 'price': 'cheap' is not a number"),
    ("decimal comma", 'size,price\n1,"2,5"\n', {}, "'2,5' is not a number"),
    ("underscore", "size,price\n1,1_000\n", {}, "'1_000' is not a number"),
    (
        "missing category",
        GOOD.replace("Bonn", ""),
        {"categorical": ["town"]},
        "line 3, column 'town': the value is missing",
    ),
    ("duplicate names", "a,price,a\n1,2,3\n", {}, "columns 1 and 3 are both named 'a'"),
    ("nameless column", ",a,price\n0,1,2\n", {}, "column 1 has no name"),
    ("short row", "a,b,price\n1,2\n1,2,3\n", {}, "line 2 has 2 values where the header has 3; correct"),
    ("long row", "a,b,price\n1,2,3,4\n", {}, "line 2 has 4 values where the header has 3"),
    ("truncated row", "a,b,price\n1,2,3\n4,5", {}, "line 3 has 2 values .* truncated"),
    ("open quote", 'a,b,price\n1,2,3\n4,"5,6\n', {}, "line 3: .* a quote not closed"),
    ("gap", "a,price\n1,2\n\n3,4\n", {}, "line 3 is empty, and rows follow"),
    ("zero byte", b"a,price\n1,2\n\0,3\n", {}, "line 3 holds a zero byte"),
    ("wrong encoding", "a,price\n1,2\nÄ,3\n".encode("cp1252"), {}, "line 3: byte 0xc4 is not utf-8; set encoding"),
    ("utf-16", GOOD.encode("utf-16"), {}, "UTF-16; set encoding='utf-16'"),
    ("not utf-16", GOOD, {"encoding": "utf-16"}, "not utf-16"),
    ("unknown encoding", GOOD, {"encoding": "klingon"}, "'klingon' is not known"),
    ("encoding with a zero character", GOOD, {"encoding": "a\0"}, "'a.x00' is not known"),
    ("other delimiter", "a;price\n1;2\n", {}, "set delimiter=';'"),
    ("long delimiter", GOOD, {"delimiter": "::"}, "one character"),
    ("no such target", GOOD, {"target": "prise"}, r"no column 'prise' \(target\); nearest: 'price'"),
    ("no such category", GOOD, {"categorical": ["Town"]}, r"no column 'Town' \(categorical\); nearest: 'town'"),
    ("no such feature", GOOD, {"features": ["zzz"]}, "its columns are 'size', 'town', 'price'"),
    ("no such drop", GOOD, {"drop": ["siz"]}, r"'siz' \(drop\); nearest: 'size'"),
    ("no such weight", GOOD, {"weight": "wt", "categorical": ["town"]}, "no column 'wt'"),
    ("target alone", "price\n1\n", {}, "no column is left as a feature"),
    (
        "negative weight",
        "a,w,price\n1,1,1\n1,-2,1\n",
        {"weight": "w"},
        "line 3, column 'w': a weight must not be negative",
    ),
    ("two roles", GOOD, {"drop": ["price"]}, "'price' is given twice: as target and as drop"),
    ("categorical target", GOOD, {"categorical": ["price"]}, "'price' is given twice"),
    ("listed twice", GOOD, {"features": ["size", "size"]}, "'size' is given twice"),
    ("not a feature", GOOD, {"features": ["size"], "categorical": ["town"]}, "in categorical but not in features"),
    ("no features", GOOD, {"features": []}, "empty list"),
]


@pytest.mark.parametrize(
    ("content", "options", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_cannot_be_used_is_refused_with_its_place(
    tmp_path: Path, content: str | bytes, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, content, **options)


def test_paths_that_are_no_readable_file_are_refused(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "houses.csv")
    for name, message in (
        ("housse.csv", "no such file; near it: houses.csv"),
        ("no/such/folder.csv", "no such file"),
        (".", "this is a folder"),
        ("x" * 300 + ".csv", "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            read_table(tmp_path / name, target="price")
    write(tmp_path, GOOD, "t.xlsx")
    with pytest.raises(InputError, match=r"unknown kind of file; supported are \.csv"):
        read_table(tmp_path / "t.xlsx", target="price")


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(GOOD.encode())
    for content in (whole[:-9], whole[:5], b"not gzip at all"):
        with pytest.raises(InputError, match="damaged or truncated"):
            read_table(write(tmp_path, content, "t.csv.gz"), target="price", categorical=["town"])


# --- NPZ and Parquet


def test_an_npz_of_x_and_y_is_a_table(tmp_path: Path) -> None:
    X, y = np.arange(6.0).reshape(3, 2), np.array([1, 2, 3])
    np.savez(tmp_path / "a.npz", X=X, y=y)
    table = read_table(tmp_path / "a.npz", target="y")
    assert table.feature_names == ("X0", "X1")
    np.testing.assert_array_equal(table.X, X)
    assert table.y.tolist() == [1, 2, 3]
    np.savez(tmp_path / "b.npz", X=X, y=y, town=np.array(["u", "b", "u"]), feature_names=np.array(["long", "wide"]))
    named = read_table(tmp_path / "b.npz", target="y", categorical=["town"])
    assert named.feature_names == ("long", "wide", "town")
    assert named.X[:, 2].tolist() == [1, 0, 1]


def test_npz_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"

    def refuses(message: str, **arrays: Any) -> None:
        np.savez(path, **arrays)
        with pytest.raises(InputError, match=message):
            read_table(path, target="y")

    X, y = np.zeros((3, 2)), np.zeros(3)
    refuses("'X0' has 3 rows, 'y' has 4", X=X, y=np.zeros(4))
    refuses("there is no column 'y'.*'X0', 'X1'", X=X)
    refuses("Python objects are never loaded", X=X, y=np.array([1, None, "a"], dtype=object))
    refuses("row 1, column 'y': 'a' is not a number", X=X, y=np.array(["a", "b", "c"]))
    refuses("row 1, column 'y'.*is not a number", X=X, y=y + 1j)
    refuses(r"row 2, column 'X1': the value is missing", X=np.array([[0, 0], [0, np.nan], [0, 0]]), y=y)
    refuses(r"row 3, column 'y': inf is not finite", X=X, y=np.array([0, 0, np.inf]))
    refuses("no 1-D or 2-D array", X=np.zeros((2, 2, 2)))
    refuses("no rows", X=np.zeros((0, 2)), y=np.zeros(0))
    refuses(
        r"'X' has 2 columns but 'feature_names' has shape \(3,\)", X=X, y=y, feature_names=np.array(["a", "b", "c"])
    )
    refuses("columns 1 and 2 are both named 'a'", X=X, y=y, feature_names=np.array(["a", "a"]))
    np.savez(path, X=X, y=y)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"PK\x03\x04", b"hello"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"t\.npz"):
            read_table(path, target="y")
    encrypted = bytearray(whole)
    for magic, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        encrypted[encrypted.index(magic) + flags] |= 1
    path.write_bytes(bytes(encrypted))
    with pytest.raises(InputError, match=r"damaged or truncated .*encrypted"):
        read_table(path, target="y")
    with path.open("wb") as file:
        np.save(file, X)
    with pytest.raises(InputError, match="single array"):
        read_table(path, target="y")


def test_a_parquet_file_reads_like_the_csv_of_the_same_table(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table(
        {
            "size": pa.array([10, 20, 10], pa.int32()),
            "town": pa.array(["Ulm", "Bonn", "Ulm"]).dictionary_encode(),
            "price": pa.array([1.5, 2, 1.5]),
            "__index_level_0__": pa.array([0, 1, 2]),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    expected = read(tmp_path, GOOD, categorical=["town"])
    found = read_table(tmp_path / "t.parquet", target="price", categorical=["town"])
    np.testing.assert_array_equal(found.X, expected.X)
    assert (found.categories, found.feature_names) == (expected.categories, expected.feature_names)


def test_parquet_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"

    def refuses(message: str, **columns: Any) -> None:
        parquet.write_table(pa.table(columns), path)
        with pytest.raises(InputError, match=message):
            read_table(path, target="y")

    y = pa.array([1.0, 2.0])
    refuses("row 2, column 'a': the value is missing", a=pa.array([1, None]), y=y)
    refuses("row 2, column 'a': inf is not finite", a=pa.array([1, float("inf")]), y=y)
    refuses("row 2, column 'a': 'x' is not a number", a=pa.array([None, "x"]), y=y)
    refuses("row 1, column 'a': .* is not a number", a=pa.array([[1], [2]]), y=y)
    refuses("column 'a'.*float64 cannot hold it", a=pa.array([2**60 + 1, 0]), y=y)
    refuses("no column 'y'", a=y)
    parquet.write_table(pa.Table.from_arrays([y, y], names=["a", "a"]), path)
    with pytest.raises(InputError, match="columns 1 and 2 are both named 'a'"):
        read_table(path, target="y")
    parquet.write_table(pa.table({"a": y, "y": y}), path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"PAR1", b"hello"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a readable Parquet file"):
            read_table(path, target="y")


def test_parquet_types_that_are_numbers_are_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from decimal import Decimal

    from pyarrow import parquet

    table = pa.table(
        {
            "flag": pa.array([True, False]),
            "cents": pa.array([Decimal("1.25"), Decimal("2.50")]),
            "half": pa.array(np.array([0.5, 1], dtype=np.float16)),
            "y": pa.array([1, 2], pa.uint8()),
        }
    )
    parquet.write_table(table, tmp_path / "t.pq")
    assert read_table(tmp_path / "t.pq", target="y").X.tolist() == [[1, 1.25, 0.5], [0, 2.5, 1]]


def test_without_pyarrow_a_parquet_file_is_refused_with_the_pip_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"pip install 'icml26\[data\]'"):
        read_table(write(tmp_path, "x", "t.parquet"), target="y")


# --- Properties

NAMES = st.lists(
    st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="_"), min_size=1, max_size=5),
    min_size=2,
    max_size=5,
    unique=True,
)


@settings(derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_every_finite_number_is_read_back_to_the_last_bit(tmp_path: Path, data: st.DataObject) -> None:
    import csv

    names = [f"n{name}" for name in data.draw(NAMES)]
    rows = data.draw(
        st.lists(
            st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=len(names), max_size=len(names)),
            min_size=1,
            max_size=8,
        )
    )
    path = tmp_path / "p.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    table = read_table(path, target=names[-1])
    assert np.column_stack([table.X, table.y]).tolist() == rows
    assert table.feature_names == tuple(names[:-1])


@settings(
    derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.one_of(st.binary(max_size=60), st.text(alphabet="ab,;\n\r\"' 01.-_e\0\ufeffé", max_size=60).map(str.encode)))
def test_any_bytes_are_a_table_or_refused(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content, "fuzz.csv")
    try:
        table = read_table(path, target="a")
    except InputError as error:
        assert "fuzz.csv" in str(error)
    else:
        assert np.isfinite(table.X).all() and np.isfinite(table.y).all()


@settings(
    derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.sampled_from(["npz", "parquet", "csv.gz"]), st.data())
def test_a_binary_file_with_a_changed_or_missing_part_is_a_table_or_refused(
    tmp_path: Path, suffix: str, data: st.DataObject
) -> None:
    path = tmp_path / f"fuzz.{suffix}"
    whole = bytearray(_binary(suffix))
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(1, len(whole) - 1)) :]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(whole))
    try:
        table = read_table(path, target="y")
    except InputError as error:
        assert "fuzz." in str(error)
    else:
        assert np.isfinite(table.X).all()


def _binary(suffix: str) -> bytes:
    import io

    buffer = io.BytesIO()
    if suffix == "npz":
        np.savez(buffer, X=np.arange(4.0).reshape(2, 2), y=np.arange(2.0))
    elif suffix == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.table({"a": [1.0, 2.0], "y": [1.0, 2.0]}), buffer)
    else:
        buffer.write(gzip.compress(b"a,y\n1,2\n3,4\n", mtime=0))
    return buffer.getvalue()


# --- Splits


def categories(tmp_path: Path) -> Table:
    return read(tmp_path, "town,price\nUlm,1\nBonn,2\nUlm,3\nAalen,4\n", categorical=["town"])


def test_categories_are_coded_in_the_sorted_order_of_the_training_rows(tmp_path: Path) -> None:
    problem = categories(tmp_path).problem(np.array([0, 1]), np.array([2]))
    assert problem.inputs.X.tolist() == [[1], [0]]
    assert problem.truth.X_test.tolist() == [[1]]
    assert problem.info["categories"] == {"town": ["Bonn", "Ulm"]}
    assert problem.inputs.categorical == (0,)


def test_a_category_of_test_rows_only_is_refused_by_name_or_its_rows_are_dropped(tmp_path: Path) -> None:
    table = categories(tmp_path)
    with pytest.raises(InputError, match=r"line 5, column 'town': the category 'Aalen' .* unseen='drop'"):
        table.problem(np.array([0, 1]), np.array([2, 3]))
    problem = table.problem(np.array([0, 1]), np.array([2, 3]), unseen="drop")
    assert problem.truth.X_test.tolist() == [[1]]
    assert problem.truth.y_test.tolist() == [3]
    assert problem.info["dropped_test_rows"] == 1
    with pytest.raises(InputError, match="every test row"):
        table.problem(np.array([0, 1]), np.array([3]), unseen="drop")


def test_inputs_and_truth_share_no_memory(tmp_path: Path) -> None:
    content = "size,town,w,price\n" + "10,Ulm,1,1.5\n20,Bonn,2,2\n" * 3
    problem = read(tmp_path, content, categorical=["town"], weight="w").problem(np.arange(4), np.array([4, 5]))
    ours = [problem.inputs.X, problem.inputs.y, problem.inputs.sample_weight]
    theirs = [problem.truth.X_test, problem.truth.y_test, problem.truth.X_train, problem.truth.y_train]
    for mine in ours:
        assert mine is not None
        assert not any(np.shares_memory(mine, other) for other in theirs)
    np.testing.assert_array_equal(problem.inputs.X, problem.truth.X_train)


def test_a_split_column_says_which_rows_are_for_training(tmp_path: Path) -> None:
    content = "size,part,price\n1,train,1\n2,test,2\n3,train,3\n"
    table = read(tmp_path, content, split_column="part")
    train, test = table.labelled_split("train", "test")
    assert (train.tolist(), test.tolist()) == ([0, 2], [1])
    assert table.feature_names == ("size",)
    with pytest.raises(InputError, match=r"line 3, column 'part': 'test' is neither 'train' .* nor 'val'"):
        table.labelled_split("train", "val")
    only = read(tmp_path, content.replace("test", "train"), split_column="part")
    with pytest.raises(InputError, match="no row has 'test' in the column 'part'"):
        only.labelled_split("train", "test")
    with pytest.raises(InputError, match="set split_column"):
        read(tmp_path, "size,price\n1,2\n").labelled_split("train", "test")


@settings(derandomize=True, deadline=None)
@given(st.integers(2, 200), st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_a_random_split_is_a_partition_with_rows_on_both_sides(n: int, fraction: float, seed: int) -> None:
    train, test = random_split(n, fraction, np.random.default_rng(seed))
    assert sorted([*train, *test]) == list(range(n))
    assert len(train) > 0 and len(test) > 0
    assert abs(len(test) - n * fraction) <= 1
    again = random_split(n, fraction, np.random.default_rng(seed))
    np.testing.assert_array_equal(again[1], test)


def test_one_row_cannot_be_split() -> None:
    with pytest.raises(InputError, match="one row"):
        random_split(1, 0.5, np.random.default_rng(0))


# --- Config


def test_the_config_reads_as_the_function_does(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    table = TableFileConfig(path=path, target="price", categorical=("town",)).read()
    np.testing.assert_array_equal(table.X, read(tmp_path, GOOD, categorical=["town"]).X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": ""}, "at least 1 character"),
        ({"target": "y", "weight": "y"}, "'y' is given twice: as target and as weight"),
        ({"target": "y", "colour": 1}, "colour"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused_before_reading(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TableFileConfig(path=Path("nowhere.csv"), **options)
