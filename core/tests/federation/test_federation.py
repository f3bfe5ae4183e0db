from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from icml26.errors import EnvironmentError_, InputError, UsageError
from icml26.registry import sources
from icml26.registry.federation import Federation, open_federation
from icml26.registry.reader import parse_registry


def document(*entries: str) -> str:
    return "schema = 1\n" + "".join(entries)


def entry(name: str, distribution: str | None = None, more: str = "") -> str:
    return (
        f'[[plugin]]\nname = "{name}"\ndistribution = "{distribution or "icml26-plugin-" + name}"\n'
        f'source = {{ kind = "index" }}\n{more}'
    )


def registry(name: str, *entries: str):
    return parse_registry(document(*entries).encode(), name, f"{name}.toml")


@pytest.fixture
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "builtin.toml"
    path.write_text(document(entry("timely")))
    monkeypatch.setenv("ICML26_REGISTRY", str(path))
    return path


def test_registries_that_differ_about_a_name_must_be_named() -> None:
    both = Federation((registry("one", entry("a")), registry("two", entry("a", "other-a"))))
    with pytest.raises(UsageError, match="say which: one/a, two/a"):
        both.find("a")
    assert both.find("two/a").entry.distribution == "other-a"
    assert both.find("other-a").registry.name == "two"


def test_registries_that_agree_are_no_clash() -> None:
    both = Federation((registry("one", entry("a")), registry("two", entry("a", more='summary = "same wheel"\n'))))
    assert both.find("a").registry.name == "one"


def test_another_hash_for_the_same_wheel_is_a_clash() -> None:
    def wheel(digit: str) -> str:
        return f'wheels = [{{ file = "icml26_plugin_a-1-py3-none-any.whl", sha256 = "{digit * 64}" }}]\n'

    both = Federation((registry("one", entry("a", more=wheel("0"))), registry("two", entry("a", more=wheel("1")))))
    with pytest.raises(UsageError, match="ambiguous"):
        both.find("a")


def test_an_unknown_name_gets_the_nearest_and_a_skipped_one_its_reason() -> None:
    one = Federation((registry("one", entry("timeguard"), entry("bad", "-r evil.txt")),))
    with pytest.raises(UsageError, match="did you mean 'timeguard'"):
        one.find("timegaurd")
    with pytest.raises(UsageError, match="bare distribution name"):
        one.find("bad")
    with pytest.raises(UsageError, match="no registry 'two'; there are: one"):
        one.find("two/timeguard")


def test_search_ranks_names_before_methods_before_texts() -> None:
    one = registry(
        "one",
        entry("zeta", more='summary = "trees for tables"\n'),
        entry("eta", more='methods = ["fast-trees"]\ntasks = ["regression.tabular"]\n'),
        entry("trees-of-love"),
    )
    found = Federation((one,)).search(["trees"])
    assert [item.entry.name for item in found] == ["trees-of-love", "eta", "zeta"]
    assert [item.entry.name for item in Federation((one,)).search(["TREES", "tables"])] == ["zeta"]
    assert [item.entry.name for item in Federation((one,)).search(task="regression.tabular")] == ["eta"]
    assert Federation((one,)).search(["nothing"]) == []


def test_add_list_remove(built_in: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(document(entry("own")))
    sources.add("lab", str(mine))
    assert [(item.name, item.location) for item in sources.sources()] == [
        ("icml26", str(built_in)),
        ("lab", str(mine)),
    ]
    assert {item.entry.name for item in open_federation().listed} == {"timely", "own"}
    with pytest.raises(UsageError, match="already"):
        sources.add("lab", str(mine))
    sources.remove("lab")
    assert [item.name for item in sources.sources()] == ["icml26"]
    with pytest.raises(UsageError, match="no registry 'lab'; added: none"):
        sources.remove("lab")
    with pytest.raises(UsageError, match="built-in"):
        sources.remove("icml26")


@pytest.mark.parametrize("name", ["../x", "Lab", "icml26", "core", "con", ""])
def test_a_registry_needs_a_plain_name(name: str, built_in: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(document())
    with pytest.raises(UsageError, match="registry name"):
        sources.add(name, str(mine))


@pytest.mark.parametrize(
    "location",
    ["ftp://example.org/r.toml", "http://example.org/r.toml", "git+https://example.org/r", "ext::sh -c x", "a\0b", " "],
)
def test_a_location_passes_the_allow_list(location: str) -> None:
    with pytest.raises(UsageError, match="registry location"):
        sources.resolve_location(location)


def test_a_registry_that_cannot_be_read_is_not_remembered(built_in: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("schema = 99\n")
    with pytest.raises(InputError, match="newer"):
        sources.add("lab", str(broken))
    assert sources.added() == ()


def test_a_registry_whose_every_entry_is_refused_is_not_remembered(
    built_in: Path, served: tuple[Path, str], own_home: Path
) -> None:
    folder, url = served
    bad = [entry(f"plugin-{number}", "Not Valid!") for number in range(7)]
    (folder / "registry.toml").write_text(document(*bad))
    for place in (str(folder / "registry.toml"), f"{url}/registry.toml"):
        with pytest.raises(
            InputError, match=r"every entry is refused.*entry 1 \('plugin-0'\): distribution.*and 2 more"
        ):
            sources.add("lab", place)
        assert sources.added() == ()
    assert not (own_home / "cache" / "registries" / "lab.toml").exists()
    (folder / "registry.toml").write_text(document(*bad, entry("good")))
    _, some = sources.add("lab", str(folder / "registry.toml"))
    assert (len(some.plugins), len(some.rejected)) == (1, 7)


def test_one_unreadable_registry_does_not_stop_the_others(built_in: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(document(entry("own")))
    sources.add("lab", str(mine))
    mine.write_text("<html>gone</html>")
    federation = open_federation()
    assert [item.entry.name for item in federation.listed] == ["timely"]
    assert re.search("registry lab is not used: .*HTML", "\n".join(federation.warnings))


def test_a_remote_registry_is_cached_and_survives_its_server(
    built_in: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, own_home: Path
) -> None:
    folder, url = served
    (folder / "registry.toml").write_text(document(entry("far")))
    source, _ = sources.add("lab", f"{url}/registry.toml")
    (folder / "registry.toml").write_text(document(entry("far"), entry("new")))
    assert [item.name for item in sources.read(source).plugins] == ["far"]
    assert [item.name for item in sources.read(source, refresh=True).plugins] == ["far", "new"]
    copy = own_home / "cache" / "registries" / "lab.toml"
    os.utime(copy, (time.time() - 48 * 3600,) * 2)
    (folder / "registry.toml").unlink()
    stale = sources.read(source)
    assert [item.name for item in stale.plugins] == ["far", "new"]
    assert "48 hours ago" in stale.warnings[-1]
    with pytest.raises(EnvironmentError_, match="404"):
        sources.read(source, refresh=True)


def test_a_remote_registry_of_50_megabytes_is_cut_off(built_in: Path, served: tuple[Path, str]) -> None:
    folder, url = served
    with (folder / "big.toml").open("wb") as file:
        file.truncate(50 << 20)
    with pytest.raises(EnvironmentError_, match="more than 5 MB"):
        sources.add("lab", f"{url}/big.toml")


def test_a_damaged_list_of_registries_says_what_to_do(built_in: Path, own_home: Path) -> None:
    (own_home / "config").mkdir(parents=True)
    (own_home / "config" / "registries.toml").write_text("[registry.lab]\nplace = 3\n")
    with pytest.raises(InputError, match="mend or delete it"):
        sources.sources()


def test_reading_writes_nothing(built_in: Path, own_home: Path) -> None:
    open_federation().search(["x"])
    assert not own_home.exists()
