"""Time series of users: what is read, and what is refused with the place and a way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from icml26.errors import InputError
from icml26.tasks.series import Series, SeriesFileConfig, read_series
from pydantic import ValidationError

GOOD = "date,a,b\n2016-07-01 00:00:00,1,4\n2016-07-01 01:00:00,2,5\n2016-07-01 02:00:00,3,6\n"


def write(folder: Path, content: str | bytes, name: str = "s.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder: Path, content: str | bytes, **options: Any) -> Series:
    return read_series(write(folder, content), **options)


def test_a_series_has_a_row_for_each_step_and_a_column_for_each_channel(tmp_path: Path) -> None:
    series = read(tmp_path, GOOD, timestamp="date")
    assert series.channels == ("a", "b")
    assert series.values.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert series.timestamps is not None
    assert (
        series.timestamps.tolist() == np.array(["2016-07-01T00", "2016-07-01T01", "2016-07-01T02"], "M8[us]").tolist()
    )
    assert series.step == np.timedelta64(1, "h")
    assert series.imputed == (0, 0)


def test_columns_choose_channels_in_their_order(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD, columns=["b", "a"]).values.tolist() == [[4, 1], [5, 2], [6, 3]]
    assert read(tmp_path, GOOD, columns=["b"]).timestamps is None


@pytest.mark.parametrize(
    ("stamps", "form", "expected"),
    [
        (["2020-01-01", "2020-01-02"], None, ["2020-01-01", "2020-01-02"]),
        (["2020-01-01T00:00Z", "2020-01-01T02:00+01:00"], None, ["2020-01-01T00:00", "2020-01-01T01:00"]),
        (["31.12.2019 23:50", "01.01.2020 00:00"], "%d.%m.%Y %H:%M", ["2019-12-31T23:50", "2020-01-01T00:00"]),
        (["20200131", "20200201"], "%Y%m%d", ["2020-01-31", "2020-02-01"]),
    ],
)
def test_instants_are_read_in_iso_or_a_given_format(
    tmp_path: Path, stamps: list[str], form: str | None, expected: list[str]
) -> None:
    series = read(tmp_path, "t,a\n" + "".join(f"{s},1\n" for s in stamps), timestamp="t", timestamp_format=form)
    np.testing.assert_array_equal(series.timestamps, np.array(expected, "M8[us]"))


def test_numbers_are_timestamps_in_the_unit_of_the_file(tmp_path: Path) -> None:
    series = read(tmp_path, "t,a\n0,1\n0.5,1\n1,1\n", timestamp="t")
    assert series.timestamps is not None and series.timestamps.tolist() == [0, 0.5, 1]
    assert series.step == 0.5
    assert read(tmp_path, "t,a\n0,1\n1,1\n3,1\n", timestamp="t").step is None


def test_the_last_value_or_a_line_fills_missing_cells_when_asked(tmp_path: Path) -> None:
    content = "a,b\n1,\n,2\nNA,3\n4,nan\n"
    linear = read(tmp_path, content, impute="linear")
    assert linear.values.tolist() == [[1, 2], [2, 2], [3, 3], [4, 3]]
    assert linear.imputed == (2, 2)
    with pytest.raises(InputError, match=r"line 2, column 'b': the first value is missing.*'linear'"):
        read(tmp_path, content, impute="previous")
    previous = read(tmp_path, content, impute="previous", columns=["a"])
    assert previous.values.ravel().tolist() == [1, 1, 1, 4]
    assert read(tmp_path, "a\n1\n2\nNA\nNA\n5\nNA\n", impute="previous").values.ravel().tolist() == [1, 2, 2, 2, 5, 5]
    assert read(tmp_path, "a\n1\nNA\nNA\n4\nNA\n", impute="linear").values.ravel().tolist() == [1, 2, 3, 4, 4]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-5, 5)), min_size=1, max_size=12))
def test_previous_uses_nothing_of_the_future(cells: list[int | None]) -> None:
    from icml26.tasks.columns import Columns
    from icml26.tasks.series_file import _filled

    cells = [0, *cells]
    numbers = np.array([[np.nan if cell is None else cell] for cell in cells], dtype=np.float64)

    def fill(part: np.ndarray) -> list[float]:
        return (
            _filled(Columns(Path("x"), "row", np.arange(len(part)), ("a",), part, {}), "previous")[0].ravel().tolist()
        )

    whole = fill(numbers)
    for end in range(1, len(cells) + 1):
        assert fill(numbers[:end]) == whole[:end]


REFUSED: list[tuple[str, str | bytes, dict[str, Any], str]] = [
    ("undeclared date", GOOD, {}, r"line 2, column 'date': '2016-07-01 00:00:00' is not a number.*timestamp"),
    ("missing", "a\n1\nNA\n", {}, "line 3, column 'a': the value is missing; .*impute='previous'"),
    ("infinite", "a\n1\ninf\n", {"impute": "linear"}, "line 3, column 'a': inf is not finite"),
    ("nothing there", "a,b\n1,\n2,\n", {"impute": "linear"}, "column 'b' has no value at all"),
    (
        "same timestamp",
        GOOD.replace("02:00:00", "00:00:00"),
        {"timestamp": "date"},
        "line 4, column 'date': the timestamp 2016-07-01 00:00:00 stands also in line 2",
    ),
    ("earlier timestamp", GOOD.replace("01:00:00", "03:00:00"), {"timestamp": "date"}, "line 4.*earlier than .*; sort"),
    ("no timestamp", GOOD.replace("2016-07-01 01:00:00", ""), {"timestamp": "date"}, "line 3.*timestamp is missing"),
    (
        "not a date",
        GOOD.replace("2016-07-01 01:00:00", "soon"),
        {"timestamp": "date"},
        "line 3.*'soon' is not an ISO 8601",
    ),
    ("no such day", "t,a\n2020-02-30,1\n", {"timestamp": "t"}, "'2020-02-30' is not an ISO"),
    ("other format", GOOD, {"timestamp": "date", "timestamp_format": "%d.%m.%Y"}, "is not a date like '%d.%m.%Y'"),
    (
        "mixed zones",
        "t,a\n2020-01-01T00Z,1\n2020-01-02,1\n",
        {"timestamp": "t"},
        "line 3.*some timestamps have a time zone",
    ),
    ("mixed kinds", "t,a\n1,1\n2020-01-02,1\n", {"timestamp": "t"}, "line 3.*is no number, while the first"),
    ("nan as a timestamp", "t,a\n1,1\nnan,1\n", {"timestamp": "t"}, "line 3.*'nan' is no number"),
    ("no such column", GOOD, {"columns": ["A"]}, r"no column 'A' \(columns\)"),
    ("no such timestamp", GOOD, {"timestamp": "dates"}, r"no column 'dates' \(timestamp\); nearest: 'date'"),
    ("timestamp alone", "t\n2020-01-01\n", {"timestamp": "t"}, "no column is left as a channel"),
    ("timestamp as channel", GOOD, {"timestamp": "date", "columns": ["date", "a"]}, "both the timestamp and a channel"),
    ("channel twice", GOOD, {"columns": ["a", "a"]}, "listed twice"),
    ("no channel", GOOD, {"columns": []}, "empty list"),
    ("array of a csv", GOOD, {"array": "data"}, "array and feature are for .npz"),
    ("unknown filling", GOOD, {"impute": "mean"}, "impute must be"),
    ("no rows", "a,b\n", {}, "no rows"),
    ("empty", "", {}, "the file is empty"),
]


@pytest.mark.parametrize(
    ("content", "options", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_cannot_be_used_is_refused_with_its_place(
    tmp_path: Path, content: str | bytes, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, content, **options)


# --- NPZ and Parquet


def test_an_npz_holds_the_values_in_data_or_its_only_matrix(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    for arrays in ({"data": values, "other": np.zeros((9, 9))}, {"x": values}, {"data": values[:, :, None]}):
        np.savez(path, **arrays)
        series = read_series(path)
        assert series.values.dtype == np.float64
        np.testing.assert_array_equal(series.values, values)
        assert series.channels == ("c0", "c1")
    np.savez(path, x=values[:, 0], when=np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "M8[D]"))
    series = read_series(path, array="x", timestamp="when")
    assert series.values.shape == (3, 1)
    assert series.step == np.timedelta64(1, "D")


def test_an_npz_with_features_gives_the_one_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "pems.npz"
    values = np.arange(24.0).reshape(4, 2, 3)
    np.savez(path, data=values, channels=np.array(["in", "out"]))
    np.testing.assert_array_equal(read_series(path, feature=1).values, values[:, :, 1])
    assert read_series(path, feature=0, columns=["out"]).values.ravel().tolist() == [3, 9, 15, 21]
    for feature, message in (
        (None, "set feature= to one of 0 … 2"),
        (3, r"feature=3.*\(4, 2, 3\)"),
        (-1, "feature=-1"),
    ):
        with pytest.raises(InputError, match=message):
            read_series(path, feature=feature)


def test_npz_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"

    def refuses(message: str, options: dict[str, Any] | None = None, **arrays: Any) -> None:
        np.savez(path, **arrays)
        with pytest.raises(InputError, match=message):
            read_series(path, **(options or {}))

    values = np.zeros((3, 2))
    refuses(r"set array= \(the file holds a \(3, 2\), b \(3, 2\)\)", a=values, b=values)
    refuses("no array 'dat'.*nearest: 'data'", {"array": "dat"}, data=values)
    refuses("no channel 'c9'", {"columns": ["c9"]}, data=values)
    refuses(r"'t' has shape \(2,\), 'data' has 3 rows", {"timestamp": "t"}, data=values, t=np.arange(2))
    refuses("no array 'tt'", {"timestamp": "tt"}, data=values, t=np.arange(3))
    refuses("row 2, column 't'.*stands also in row 1", {"timestamp": "t"}, data=values, t=np.array([1, 1, 2]))
    refuses(
        "row 2, column 't': the timestamp is missing",
        {"timestamp": "t"},
        data=values,
        t=np.array([1, "NaT", 3], "M8[s]"),
    )
    refuses("row 3, column 'c1': the value is missing", data=np.array([[0, 0], [0, 0], [0, np.nan]]))
    refuses("row 3, column 'c1': -inf is not finite", data=np.array([[0, 0], [0, 0], [0, -np.inf]]))
    refuses("complex128; the values of a series must be real", data=values + 1j)
    refuses("type <U1", data=np.array([["a"]]))
    refuses(r"\(T, C\) or \(T, C, F\)", data=np.zeros((2, 2, 2, 2)))
    refuses("'data' is empty", data=np.zeros((0, 2)))
    refuses("feature= chooses along a third", {"feature": 0}, data=values)
    refuses("both named 'a'", data=values, channels=np.array(["a", "a"]))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="damaged or truncated"):
        read_series(path)


def test_a_parquet_file_reads_like_the_csv_of_the_same_series(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    expected = read(tmp_path, GOOD, timestamp="date")
    assert expected.timestamps is not None
    for stamps in (
        pa.array(expected.timestamps),
        pa.array(expected.timestamps.astype("M8[ns]")),
        pa.array(expected.timestamps, pa.timestamp("us", tz="Europe/Berlin")),
        pa.array([str(stamp) for stamp in expected.timestamps]),
    ):
        table = pa.table({"date": stamps, "a": [1, 2, 3], "b": [4.0, 5.0, 6.0]})
        parquet.write_table(table, tmp_path / "s.parquet")
        found = read_series(tmp_path / "s.parquet", timestamp="date")
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.timestamps, expected.timestamps)
    with pytest.raises(InputError, match=r"row 1, column 'date': .* is not a number"):
        read_series(tmp_path / "s.parquet")


@settings(
    derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.text(alphabet="ab,\n 01.-:TZ+", max_size=60))
def test_any_text_is_a_series_or_refused(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, "t,a\n" + content, "fuzz.csv")
    try:
        series = read_series(path, timestamp="t")
    except InputError as error:
        assert "fuzz.csv" in str(error)
    else:
        assert series.timestamps is not None and (series.timestamps[1:] > series.timestamps[:-1]).all()


# --- The record and the config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.zeros(3)}, r"shape \(T, C\), not empty; got float64 \(3,\)"),
        ({"values": np.zeros((3, 1), dtype=np.float32)}, "got float32"),
        ({"values": np.zeros((0, 1))}, "not empty"),
        ({"values": np.array([[0.0], [np.nan], [0.0]])}, "step 1, channel 'a': nan is not finite"),
        ({"channels": ("a", "b")}, "1 channels need as many different names"),
        ({"timestamps": np.arange(2.0)}, "one a step"),
        ({"timestamps": np.arange(3)}, "datetime64.* or float64"),
        ({"timestamps": np.array([0.0, 1.0, 1.0])}, "must increase"),
        ({"timestamps": np.array([0.0, np.nan, 1.0])}, "must increase"),
    ],
)
def test_a_series_that_breaks_its_contract_is_refused(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"values": np.zeros((3, 1)), "channels": ("a",), "timestamps": np.arange(3.0)}
    Series(**good)
    with pytest.raises(InputError, match=message):
        Series(**(good | change))


def test_the_config_reads_as_the_function_does_and_refuses_contradictions(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    config = SeriesFileConfig(path=path, timestamp="date", columns=("b",))
    assert config.read().values.tolist() == [[4], [5], [6]]
    for options in (
        {"impute": "mean"},
        {"feature": -1},
        {"columns": ("a", "a")},
        {"columns": ("a",), "timestamp": "a"},
    ):
        with pytest.raises(ValidationError):
            SeriesFileConfig(path=path, **options)


def test_the_type_of_a_series_imports_nothing_heavier_than_numpy() -> None:
    code = "import sys, icml26.tasks.series; print(sorted({'pandas', 'pyarrow', 'pydantic'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
