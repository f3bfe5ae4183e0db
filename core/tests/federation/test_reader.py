from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from icml26.errors import InputError
from icml26.registry import rules, toml
from icml26.registry.model import PluginEntry, json_schema
from icml26.registry.reader import parse_registry, read_registry

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GOOD = """
[[plugin]]
name = "good"
distribution = "icml26-plugin-good"
source = { kind = "index" }
"""


def parse(text: str, **options: object):
    return parse_registry(("schema = 1\n" + text).encode(), "lab", "lab.toml", **options)  # type: ignore[arg-type]


def entry(**changes: str) -> str:
    fields = {
        "name": '"bad"',
        "distribution": '"icml26-plugin-bad"',
        "source": '{ kind = "index" }',
    } | changes
    return "[[plugin]]\n" + "".join(f"{key} = {value}\n" for key, value in fields.items())


def git(url: str = "https://example.org/lab/bad.git", revision: str = COMMIT, extra: str = "") -> str:
    return f'{{ kind = "git", url = "{url}", revision = "{revision}"{extra} }}'


BAD_ENTRIES = {
    "name climbs": (entry(name='"../x"'), "not kebab-case"),
    "name is an option": (entry(name='"-r"'), "not kebab-case"),
    "name in capitals": (entry(name='"Bad"'), "not kebab-case"),
    "name of Windows": (entry(name='"nul"'), "reserved file name"),
    "name of core": (entry(name='"core"'), "reserved name"),
    "name not ASCII": (entry(name='"\u00fcn\u00ef"'), "not kebab-case"),
    "name too long": (entry(name=f'"{"a" * 41}"'), "longer than 40"),
    "NUL in the name": (entry(name='"bad\\u0000"'), "not kebab-case"),
    "requirements file": (entry(distribution='"-r evil.txt"'), "bare distribution name"),
    "index option": (entry(distribution='"x --index-url=https://evil.example"'), "bare distribution name"),
    "direct reference": (entry(distribution='"x @ file:///etc/passwd"'), "bare distribution name"),
    "extra": (entry(distribution='"x[evil]"'), "bare distribution name"),
    "version in the name": (entry(distribution='"x==1.0"'), "bare distribution name"),
    "newline in the distribution": (entry(distribution='"x\\n--pre"'), "bare distribution name"),
    "core as a plugin": (entry(distribution='"ICML26"'), "core itself"),
    "branch": (entry(source=git(revision="main")), "full commit id"),
    "short id": (entry(source=git(revision=COMMIT[:12])), "full commit id"),
    "option as revision": (entry(source=git(revision="--upload-pack=touch pwned")), "full commit id"),
    "ext transport": (entry(source=git(url="ext::sh -c touch% pwned")), "not a plain URL"),
    "ext without blanks": (entry(source=git(url="ext::sh%20-c")), "scheme"),
    "file transport": (entry(source=git(url="file:///srv/repo.git")), "scheme"),
    "plain http": (entry(source=git(url="http://example.org/lab/bad.git")), "not encrypted"),
    "option as host": (entry(source=git(url="ssh://-oProxyCommand=evil/x")), "no plain host"),
    "credentials": (entry(source=git(url="https://user:secret@example.org/x.git")), "credentials"),
    "newline in the URL": (entry(source=git(url="https://example.org/x\\n.git")), "not a plain URL"),
    "subdirectory climbs": (entry(source=git(extra=', subdirectory = "../.."')), "plain relative folder"),
    "subdirectory hides a climb": (entry(source=git(extra=', subdirectory = "a/../../b"')), "plain relative folder"),
    "absolute subdirectory": (entry(source=git(extra=', subdirectory = "/etc"')), "plain relative folder"),
    "Windows subdirectory": (entry(source=git(extra=', subdirectory = "a\\\\b"')), "plain relative folder"),
    "absolute path": (entry(source='{ kind = "path", path = "/etc" }'), "plain relative folder"),
    "unknown source": (entry(source='{ kind = "svn", url = "x" }'), "none of 'index', 'git', 'path'"),
    "no source": ('[[plugin]]\nname = "bad"\ndistribution = "icml26-plugin-bad"\n', "source: is missing"),
    "source without a kind": (entry(source="{}"), "kind is missing"),
    "entry is no table": ("plugin = [3]", "is not a table"),
    "hash too short": (
        entry(wheels='[{ file = "icml26_plugin_bad-1-py3-none-any.whl", sha256 = "abc" }]'),
        "sha256",
    ),
    "wheel of another": (
        entry(wheels=f'[{{ file = "numpy-1-py3-none-any.whl", sha256 = "{"0" * 64}" }}]'),
        "wheel of numpy",
    ),
    "wheel climbs": (
        entry(wheels=f'[{{ file = "../icml26_plugin_bad-1-py3-none-any.whl", sha256 = "{"0" * 64}" }}]'),
        "file name of a wheel",
    ),
    "terminal escape": (entry(summary='"\\u001b[2J gone"'), "control"),
    "right-to-left override": (entry(summary='"abc\\u202egnp"'), "control or invisible"),
    "version is an option": (entry(source='{ kind = "index", version = "; --pre" }'), "version specifier"),
    "javascript homepage": (entry(homepage='"javascript:alert(1)"'), "scheme"),
    "name twice": (entry() + entry(distribution='"other"'), "stands 2 times"),
    "distribution twice": (entry() + entry(name='"worse"', distribution='"ICML26_plugin.bad"'), "stands 2 times"),
    "text too long": (entry(summary=f'"{"x" * 501}"'), "at most 500"),
    "integer as text": (entry(summary="3"), "summary"),
}


@pytest.mark.parametrize("case", BAD_ENTRIES)
def test_a_hostile_entry_is_named_and_skipped_and_its_neighbour_stays(case: str, tmp_path: Path) -> None:
    text, reason = BAD_ENTRIES[case]
    good = GOOD if not text.startswith("plugin =") else ""
    registry = parse(text + good, folder=tmp_path)
    assert registry.rejected, "nothing was rejected"
    for item in registry.rejected:
        assert reason in item.reason
        assert item.reason.isprintable() and item.entry.isprintable()
    assert [plugin.name for plugin in registry.plugins] == (["good"] if good else [])


BAD_DOCUMENTS = {
    "newer schema": (b"schema = 2\n", "newer than 1"),
    "no schema": (b"[[plugin]]\n", "is missing"),
    "schema as text": (b'schema = "1"\n', "is missing or not an integer"),
    "schema zero": (b"schema = 0\n", "no registry schema 0"),
    "HTML page": (b"<!doctype html><html>not found</html>", "HTML"),
    "not UTF-8": (b'schema = 1\ntitle = "\xff\xfe"\n', "not UTF-8 (byte 20)"),
    "NUL byte": (b"schema = 1\n\x00", "not valid TOML"),
    "cut off": (b'schema = 1\n[[plugin]]\nname = "a', "not valid TOML"),
    "plugin is a table": (b"schema = 1\n[plugin]\n", "array of tables"),
    "nested without end": (b"schema = 1\nx = " + b"[" * 100_000, "not valid TOML"),
}


@pytest.mark.parametrize("case", BAD_DOCUMENTS)
def test_a_document_that_is_no_registry_is_refused_with_its_place(case: str) -> None:
    data, reason = BAD_DOCUMENTS[case]
    with pytest.raises(InputError, match=re.escape(reason)) as caught:
        parse_registry(data, "lab", "lab.toml")
    assert "lab.toml" in str(caught.value)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "registry.toml"
    with path.open("wb") as file:
        file.truncate(50 << 20)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("the file was read"))
    with pytest.raises(InputError, match="50 MB; at most 5 MB are read"):
        read_registry(path, "lab")


def test_path_sources_need_a_local_registry(tmp_path: Path) -> None:
    text = entry(source='{ kind = "path", path = "plugins/bad" }')
    assert [item.name for item in parse(text, folder=tmp_path).plugins] == ["bad"]
    assert "local file" in parse(text).rejected[0].reason


def test_unknown_keys_warn_and_do_not_refuse() -> None:
    registry = parse(entry(colour='"blue"', source='{ kind = "index", speed = 3 }'))
    assert [plugin.name for plugin in registry.plugins] == ["bad"]
    assert any("'colour'" in note for note in registry.warnings)
    assert any("'speed'" in note for note in registry.warnings)


def test_good_git_addresses_pass() -> None:
    for url in ("https://example.org/lab/x.git", "ssh://git@example.org/lab/x.git", "http://127.0.0.1:8000/x.git"):
        assert not parse(entry(source=git(url=url, extra=', subdirectory = "plugins/bad"'))).rejected


def test_names_are_normalised() -> None:
    assert parse(entry(distribution='"Icml26_Plugin.Bad"')).plugins[0].distribution == "icml26-plugin-bad"


def test_the_published_schema_carries_the_same_patterns() -> None:
    schema = json_schema()
    assert schema["properties"]["schema"] == {"const": 1, "description": "Version of this format."}
    assert schema["$defs"]["GitSource"]["properties"]["revision"]["pattern"] == rules.REVISION_PATTERN
    assert set(schema["$defs"]["PluginEntry"]["required"]) == {"name", "distribution", "source"}
    json.dumps(schema)


@given(
    st.dictionaries(st.text(min_size=1), st.text() | st.integers() | st.booleans() | st.lists(st.text()), min_size=1)
)
def test_what_the_writer_writes_a_toml_reader_reads(table: dict[str, object]) -> None:
    import tomllib

    table = {key: item for key, item in table.items() if item not in ("", [])}
    try:
        text = toml.table("[t]", table)
        text.encode("utf-8")
    except UnicodeEncodeError:
        return
    assert tomllib.loads(text)["t"] == table


@given(st.text())
def test_no_text_at_all_passes_as_an_argument_that_is_an_option(text: str) -> None:
    for check in (
        rules.distribution_name,
        rules.plugin_name,
        rules.commit,
        rules.relative_path,
        rules.git_url,
        rules.wheel_file,
    ):
        try:
            value = check(text)
        except ValueError:
            continue
        assert not value.startswith("-") and value.isascii() and not re.search(r"[\s\x00]", value)


def test_an_entry_is_frozen() -> None:
    plugin = PluginEntry.model_validate({"name": "a", "distribution": "a-b", "source": {"kind": "index"}})
    with pytest.raises(Exception, match="frozen"):
        plugin.name = "b"  # type: ignore[misc]
