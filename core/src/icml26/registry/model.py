"""One entry of a registry, and its JSON schema. Every string passes an allow-list of ``icml26.registry.rules``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from packaging.utils import canonicalize_name, parse_wheel_filename
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from icml26.names import MAX_LENGTH
from icml26.registry import rules

SCHEMA = 1

PluginName = Annotated[str, Field(json_schema_extra={"maxLength": MAX_LENGTH}), AfterValidator(rules.plugin_name)]
EntryName = Annotated[str, AfterValidator(rules.entry_name)]
TaskName = Annotated[str, AfterValidator(rules.task_name)]
DistributionName = Annotated[str, AfterValidator(rules.distribution_name)]
Specifier = Annotated[str, AfterValidator(rules.version_specifier)]
Sha256 = Annotated[str, Field(json_schema_extra={"pattern": rules.SHA256_PATTERN}), AfterValidator(rules.sha256_hex)]
Commit = Annotated[str, Field(json_schema_extra={"pattern": rules.REVISION_PATTERN}), AfterValidator(rules.commit)]
RelativePath = Annotated[
    str, Field(json_schema_extra={"pattern": rules.SUBDIRECTORY_PATTERN}), AfterValidator(rules.relative_path)
]
WheelFile = Annotated[str, AfterValidator(rules.wheel_file)]
GitUrl = Annotated[str, AfterValidator(rules.git_url)]
WebUrl = Annotated[str, AfterValidator(rules.web_url)]
Text = Annotated[str, AfterValidator(rules.printable)]


class _Table(BaseModel):
    # Unknown keys are kept, so that they can be named in a warning: a later minor version may add some.
    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class IndexSource(_Table):
    """The distribution is on the package index that the user's installer is set up for."""

    kind: Literal["index"]
    version: Specifier | None = Field(default=None, description="Version specifier, e.g. '>=0.2'.")


class GitSource(_Table):
    """The distribution is built from a git repository at a full commit; needs ``--allow-build``."""

    kind: Literal["git"]
    url: GitUrl = Field(description="https:// (or ssh://git@) URL of the repository.")
    revision: Commit = Field(description="Full commit id; branches and tags are refused, since they move.")
    subdirectory: RelativePath | None = Field(default=None, description="Folder of the project in the repository.")


class PathSource(_Table):
    """A project folder (built, with ``--allow-build``) or a wheel beside a local registry file."""

    kind: Literal["path"]
    path: RelativePath = Field(description="Relative to the registry file, without '..'.")


Source: TypeAlias = Annotated[IndexSource | GitSource | PathSource, Field(discriminator="kind")]


class PaperEntry(_Table):
    """The paper that a plugin implements."""

    title: Text
    arxiv: Annotated[str, StringConstraints(pattern=r"^[a-z0-9./-]{1,40}$")] | None = None
    openreview: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,40}$")] | None = None
    venue: Text = "ICML 2026"
    authors: tuple[Text, ...] = Field(default=(), strict=False)


class Wheel(_Table):
    """A released wheel and its sha256: once a release is listed here, only a file with that content is installed."""

    file: WheelFile
    sha256: Sha256


class PluginEntry(_Table):
    """One plugin of a registry."""

    name: PluginName = Field(description="Short name: the plugin's entry point in group 'icml26'.")
    distribution: DistributionName = Field(description="Name of the distribution that an installer gets.")
    summary: Text = ""
    source: Source
    core_api: Annotated[int, Field(ge=1)] = 1
    license: Text | None = Field(default=None, description="SPDX expression.")
    homepage: WebUrl | None = None
    maintainers: tuple[Text, ...] = Field(default=(), strict=False)
    paper: PaperEntry | None = None
    tasks: tuple[TaskName, ...] = Field(default=(), strict=False, description="Tasks of its methods and datasets.")
    methods: tuple[EntryName, ...] = Field(default=(), strict=False)
    datasets: tuple[EntryName, ...] = Field(default=(), strict=False)
    wheels: tuple[Wheel, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _wheels_are_its_own(self) -> PluginEntry:
        for wheel in self.wheels:
            project = canonicalize_name(parse_wheel_filename(wheel.file)[0])
            if project != self.distribution:
                raise ValueError(
                    f"wheels: {rules.shown(wheel.file)} is a wheel of {project}, not of {self.distribution}"
                )
        files = [wheel.file for wheel in self.wheels]
        if len(set(files)) != len(files):
            raise ValueError("wheels: a file is listed twice")
        return self


def json_schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of a registry document."""
    entry = PluginEntry.model_json_schema(mode="validation", ref_template="#/$defs/{model}")
    definitions = entry.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "icml26 registry",
        "description": "A registry of icml26 plugins. Unknown keys are warnings; a newer schema is refused.",
        "type": "object",
        "required": ["schema", "plugin"],
        "properties": {
            "schema": {"const": SCHEMA, "description": "Version of this format."},
            "title": {"type": "string"},
            "plugin": {"type": "array", "items": {"$ref": "#/$defs/PluginEntry"}},
        },
        "$defs": {**definitions, "PluginEntry": entry},
    }
