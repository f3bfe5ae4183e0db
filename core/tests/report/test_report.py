"""The report without a browser: what is on the pages, what is refused, what cannot hurt."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from icml26.errors import UsageError
from icml26.labels import Described, short_labels
from made_up import record

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from icml26.digits import number, spread
from icml26.report import build_report
from icml26.report.build import MARKER, write_script
from icml26.report.collect import collect, same_setting
from icml26.report.curves import average, read_curves, thin
from icml26.report.drawing import Sketch, draw_all
from icml26.report.plots import Dot, Line, lines, scatter
from icml26.report.views import Plot, duration, size
from icml26.statistics import Estimate

from report.sites import HOSTILE, folder_of, forecasting, hostile, reproduction


class Page(HTMLParser):
    """The tags of a page with their attributes, and its texts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_pages_show_means_intervals_failures_and_who_leads(tmp_path: Path) -> None:
    summary = build_report(forecasting(tmp_path / "runs"), tmp_path / "site")
    assert (summary.runs, summary.tasks, summary.plots_left_out, summary.skipped) == (32, 1, 0, {})
    text = flat(Page(tmp_path / "site" / "task-1.html").text)
    assert "1.15 ± 0.21" in text, "mean of 1.0, 1.1, 1.2, 1.3 with t(3) = 3.182"
    assert "(1 failed)" in text
    assert "timed-out" in text
    assert "Paired differences to none" in text
    index = flat(Page(tmp_path / "site" / "index.html").text)
    assert "forecasting.defense" in index
    assert index.index("clean oracle") < index.index("ours"), "best first"


def test_the_best_is_no_oracle_and_has_no_failures(tmp_path: Path) -> None:
    build_report(forecasting(tmp_path / "runs"), tmp_path / "site")
    page = (tmp_path / "site" / "task-1.html").read_text()
    best = re.findall(r'<td class="value best"[^>]*>\s*<span class="number">([^<]*)', page)
    assert set(best) == {"1.15", "11.5"}


def test_a_run_has_a_page_with_all_of_it(tmp_path: Path) -> None:
    found = forecasting(tmp_path / "runs")
    build_report(found, tmp_path / "site")
    text = flat(Page(tmp_path / "site" / "runs" / f"{found[0][0].id}.html").text)
    for part in ("ours on traffic", "one line", "beta", "3.11.7", "95.4 MiB", "lower is better", found[0][0].key):
        assert part in text
    failed = next(made for made, _ in found if made.status == "timed-out")
    assert "broken" in Page(tmp_path / "site" / "runs" / f"{failed.id}.html").text


def test_links_lead_to_files_that_exist(tmp_path: Path) -> None:
    found = forecasting(tmp_path / "runs", seeds=1)
    site = tmp_path / "site"
    build_report(found, site, reproductions=[reproduction(found)])
    checked = 0
    for path in site.rglob("*.html"):
        for _, attributes in Page(path).tags:
            link = (attributes.get("href") or attributes.get("src") or "").partition("#")[0]
            if link and not link.startswith("data:"):
                assert (path.parent / link).exists(), (path, link)
                checked += 1
    assert checked > 100


def test_nothing_is_fetched_from_anywhere(tmp_path: Path) -> None:
    found = forecasting(tmp_path / "runs", seeds=2)
    build_report(found, tmp_path / "site", reproductions=[reproduction(found)])
    for path in (tmp_path / "site").rglob("*"):
        if path.suffix in (".html", ".css", ".js"):
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "http:" not in text, path
            assert "https:" not in text, path
            assert "@import" not in text, path


def test_hostile_text_is_only_text(tmp_path: Path) -> None:
    found = hostile(tmp_path / "runs")
    site = tmp_path / "site"
    build_report(found, site, reproductions=[reproduction(found, HOSTILE)], title=HOSTILE)
    pages = list(site.rglob("*.html"))
    assert len(pages) == 4 + 4
    for path in pages:
        page = Page(path)
        for tag, attributes in page.tags:
            assert not any(name.startswith("on") for name in attributes), (path, tag)
            link = attributes.get("href") or attributes.get("src") or ""
            assert not link.lower().startswith(("javascript", "vbscript")), (path, link)
            if tag == "script":
                assert link in ("assets/report.js", "../assets/report.js", "data/runs.js")
            if tag == "img":
                assert link.endswith("picture.svg")
        assert str(7123 * 7321) not in page.text, "a template inside a text is not run"
    assert "<" not in (site / "data" / "runs.js").read_text()


def test_names_of_files_cannot_leave_the_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    made = record()
    folder = folder_of(tmp_path / "runs", made)
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    made.log = "../../secret.txt"
    made.artifacts = ["../../secret.txt", "/etc/passwd", "link.txt", "javascript:alert(1)", "a/../../../secret.txt"]
    build_report([(made, folder)], tmp_path / "site", bundle=True)
    page = Page(tmp_path / "site" / "runs" / f"{made.id}.html")
    assert "secret" not in [part.strip() for part in page.text.split("\n")]
    hrefs = [attributes.get("href") or "" for _, attributes in page.tags]
    assert not [
        href for href in hrefs if "secret" in href or "passwd" in href or "javascript" in href or "link.txt" in href
    ]
    assert not list((tmp_path / "site").rglob("secret.txt"))


def test_a_record_cannot_claim_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "id_rsa").write_text("secret key")
    made = record()
    made.log, made.artifacts = "id_rsa", ["id_rsa"]
    build_report([(made, keys)], tmp_path / "site", bundle=True)
    assert not [
        path for path in (tmp_path / "site").rglob("*") if path.is_file() and b"secret key" in path.read_bytes()
    ]


def test_a_record_id_cannot_name_a_path(tmp_path: Path) -> None:
    made = [record(id="../../../evil"), record(id="../../../evil"), record(id="x" * 300)]
    build_report([(item, None) for item in made], tmp_path / "site")
    assert sorted(path.name for path in (tmp_path / "site" / "runs").iterdir()) == [
        "run-0.html",
        "run-1.html",
        "run-2.html",
    ]
    assert not (tmp_path / "evil.html").exists()


def test_records_of_a_wrong_shape_are_left_out_and_named(tmp_path: Path) -> None:
    wrong = [record(id=f"w{i}") for i in range(4)]
    wrong[0].metrics = {"a": {"value": "three"}}
    wrong[1].method = {"config": {}}
    wrong[2].seconds = {"run": None}  # type: ignore[dict-item]
    wrong[3].error = "text"  # type: ignore[assignment]
    summary = build_report([(record(), None), *((item, None) for item in wrong)], tmp_path / "site")
    assert summary.runs == 1
    assert set(summary.skipped) == {"w0", "w1", "w2", "w3"}


def test_bundled_sites_hold_the_files(tmp_path: Path) -> None:
    found = forecasting(tmp_path / "runs", seeds=1)
    build_report(found, tmp_path / "site", bundle=True)
    moved = tmp_path / "moved"
    (tmp_path / "site").rename(moved)
    page = moved / "runs" / f"{found[0][0].id}.html"
    sources = [attributes["src"] for tag, attributes in Page(page).tags if tag == "img"]
    assert sources
    assert all(source is not None and (page.parent / source).resolve().is_relative_to(moved) for source in sources)


def test_only_a_report_is_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="something other than a report"):
        build_report([(record(), None)], precious)
    assert (precious / "thesis.tex").exists()
    build_report([(record(id="first"), None)], tmp_path / "site")
    build_report([(record(id="second"), None)], tmp_path / "site")
    assert [path.name for path in (tmp_path / "site" / "runs").iterdir()] == ["second.html"]
    assert json.loads((tmp_path / "site" / MARKER).read_text())["runs"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "site"], "no temporary folders are left"


def test_a_failed_build_keeps_the_old_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_report([(record(id="first"), None)], tmp_path / "site")
    monkeypatch.setattr("icml26.report.build.write_script", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build_report([(record(id="second"), None)], tmp_path / "site")
    assert (tmp_path / "site" / "runs" / "first.html").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_the_newest_succeeded_run_of_a_setting_counts(tmp_path: Path) -> None:
    older, newer, failed = record(metrics={"m": 1.0}), record(metrics={"m": 2.0}), record(status="failed")
    boards, runs = collect([(failed, None), (older, None), (newer, None)])
    assert [run.record.value("m") for run in boards[0].runs] == [2.0]
    assert [run.superseded for run in runs] == [True, True, False]
    assert boards[0].superseded == 2


def test_times_are_not_compared_across_machines_or_loads(tmp_path: Path) -> None:
    found = [record(seed=seed) for seed in range(3)]
    found[2].provenance["workers"] = 8
    boards, _ = collect([(made, None) for made in found])
    kept, left = same_setting(boards[0].runs)
    assert (len(kept), left) == (2, 1)
    build_report([(made, None) for made in found], tmp_path / "site")
    assert "times are not compared" in Page(tmp_path / "site" / "task-1.html").text


def test_plots_are_drawn_in_turn_up_to_the_budget() -> None:
    made: list[str] = []

    def sketch(task: str, number: int) -> Sketch:
        def draw() -> Plot:
            made.append(f"{task}{number}")
            return Plot(f"{task}{number}", "", [])

        return Sketch(task, "d", draw)

    drawn, count, left = draw_all([[sketch("a", i) for i in range(5)], [sketch("b", i) for i in range(2)]], 4)
    assert made == ["a0", "b0", "a1", "b1"]
    assert (count, left) == (4, 3)
    assert [plot.title for plot in drawn["a", "d"]] == ["a0", "a1"]


@pytest.mark.parametrize("label", [HOSTILE, "$x^2", "$\\frac{$", "日本語", "\x00\x1b[31m", "a" * 500, "_", ""])
def test_any_text_can_label_a_plot(label: str) -> None:
    dots = [Dot(1, 2, 0.5, 1.5, 1, 3), Dot(2, math.nan), Dot(3, 4)]
    for svg in (
        scatter([Line(label, dots)], [0], x_label=label, y_label=label, salt="s"),
        lines(
            [Line(label, dots, [[(1, 2), (2, 3)]])], [9], x_label=label, y_label=label, x_ticks=[label, label], salt="s"
        ),
    ):
        assert svg.startswith("<svg ")
        tags = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attrs, tags=tags: tags.append(tag)  # type: ignore[method-assign,assignment,misc]
        parser.feed(svg)
        assert not {"script", "img", "foreignobject"} & set(tags)
        assert "var(--s" in svg
        assert "#fe010" not in svg


def test_logarithmic_axes_have_plain_numbers() -> None:
    svg = scatter([Line("a", [Dot(0.001, 1), Dot(10, 5000)])], [0], x_label="x", y_label="y", log="xy", salt="s")
    assert "mathdefault" not in svg
    assert ">0.01<" in svg
    assert ">1000<" in svg


def test_script_files_are_plain_data(tmp_path: Path) -> None:
    write_script(tmp_path / "d.js", "x", {"a": "</script>&\u2028", "n": math.inf})
    text = (tmp_path / "d.js").read_text()
    assert "</" not in text
    assert json.loads(text.removeprefix("window.x = ").rstrip(";\n")) == {
        "a": "</script>&\u2028",
        "n": {"nonfinite": "inf"},
    }


def test_curves_are_read_whatever_is_in_the_file(tmp_path: Path) -> None:
    good = [json.dumps({"name": "a", "value": float(i), "step": i}) for i in range(1000)]
    bad = [
        "{",
        "[]",
        "3",
        '{"name": "a"}',
        '{"name": "a", "value": "x"}',
        '{"name": "b", "value": {"nonfinite": "nan"}}',
    ]
    (tmp_path / "curves.jsonl").write_text("\n".join([*bad, *good]) + '\n{"name": "a", "val')
    curves = read_curves(tmp_path, "curves.jsonl")
    assert set(curves) == {"a", "b"}
    assert len(curves["a"]) == 200
    assert (curves["a"][0], curves["a"][-1]) == ((0.0, 0.0), (999.0, 999.0))
    assert math.isnan(curves["b"][0][1])
    assert read_curves(tmp_path, "../curves.jsonl") == {}
    assert read_curves(tmp_path / "gone", "curves.jsonl") == {}


def test_curves_are_averaged_where_seeds_share_steps() -> None:
    assert average([[(0, 1.0), (1, 3.0)], [(0, 3.0), (2, 9.0)]]) == [(0, 2.0)]
    assert thin([(0, 0.0)]) == [(0, 0.0)]


def test_labels_say_what_differs_and_are_unique() -> None:
    one, two = Described("p/m", {"a": 1, "b": 2}), Described("p/m", {"a": 1, "b": 3.5})
    assert list(short_labels([one, two]).values()) == ["m (b=2)", "m (b=3.5)"]
    assert list(short_labels([one]).values()) == ["m"]
    assert list(short_labels([one, Described("q/m", {})]).values()) == ["p/m", "q/m"]
    assert list(short_labels([Described("p/m", {"a": 1}, "small"), Described("p/m", {"a": 2})]).values()) == [
        "m [small]",
        "m",
    ]
    grid = [Described("p/m", {"eps": e, "steps": 10 * s, "rate": s}) for e in range(3) for s in range(2)]
    assert list(short_labels(grid).values())[:2] == ["m (eps=0, steps=0)", "m (eps=0, steps=10)"]
    long = [Described("p/m", {"a": "x" * 100 + str(i)}) for i in range(3)]
    labels = list(short_labels(long).values())
    assert len(set(labels)) == 3
    assert all(len(label) < 60 for label in labels)


def test_numbers_are_written_for_people() -> None:
    assert [number(x) for x in (None, 3, 3.0, 0.123456, 1.5e-9, math.nan)] == [
        "–",
        "3",
        "3",
        "0.1235",
        "1.5e-09",
        "nan",
    ]
    assert [duration(x) for x in (None, 0.012, 3.14159, 200, 7500)] == [
        "–",
        "12 ms",
        "3.14 s",
        "3 min 20 s",
        "2 h 05 min",
    ]
    assert [size(x) for x in (None, 512, 100_000_000)] == ["–", "512 B", "95.4 MiB"]
    assert spread(Estimate(11.1234, 10.8, 11.4, 3)) == ("11.12", "± 0.30")
    assert spread(Estimate(0.5, None, None, 1)) == ("0.5", "")
    assert spread(Estimate(1234567.0, 1234000.0, 1235134.0, 3)) == ("1.235e+06", "± 5.7e+02")


def test_an_empty_store_makes_a_site_too(tmp_path: Path) -> None:
    build_report([], tmp_path / "site")
    assert "There are no runs yet" in Page(tmp_path / "site" / "index.html").text


def test_a_users_files_are_told_apart_by_their_names() -> None:
    def table(path: str, content: str) -> Described:
        return Described("core/table", {"path": path}, None, {"path": f"sha256:{content * 64}"})

    labels = short_labels([table("/d/houses.csv", "a"), table("/d/cars.csv", "b")])
    assert list(labels.values()) == ["table (path=houses.csv)", "table (path=cars.csv)"]
    labels = short_labels([table("/d/x.csv", "a"), table("/e/x.csv", "b")])
    assert list(labels.values()) == ["table (path=aaaaaaaa x.csv)", "table (path=bbbbbbbb x.csv)"]
    moved = short_labels([table("/d/x.csv", "a"), table("/e/y.csv", "a")])
    assert list(moved.values()) == ["table"]
