"""Real artefacts for the tests: wheels, a package index, git repositories served over HTTP."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

BACKEND = """
import zipfile, pathlib
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    (pathlib.Path(__file__).parent / "BUILT").write_text("a build ran")
    name = "{file}"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as archive:
        for path, text in {members!r}.items():
            archive.writestr(path, text)
    return name
"""


def wheel_members(
    distribution: str, version: str, plugin: str | None, requires: tuple[str, ...] = (), **extra: str
) -> dict[str, str]:
    """The files of a plugin's wheel whose module does nothing."""
    module = distribution.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    members = {
        f"{module}/__init__.py": extra.get("init", ""),
        f"{module}/plugin.py": extra.get("plugin_code", ""),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {item}\n" for item in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if plugin is not None:
        members[f"{info}/entry_points.txt"] = f"[icml26]\n{plugin} = {module}.plugin\n"
    members[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*members, f"{info}/RECORD"))
    return members


def make_wheel(
    folder: Path,
    distribution: str,
    version: str = "1.0",
    plugin: str | None = "",
    requires: tuple[str, ...] = (),
    **extra: str,
) -> Path:
    """Write a wheel and return its path; the plugin's name defaults to the distribution's last word."""
    plugin = distribution.rsplit("-", 1)[-1] if plugin == "" else plugin
    path = folder / f"{distribution.replace('-', '_')}-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in wheel_members(distribution, version, plugin, requires, **extra).items():
            archive.writestr(name, text)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_index(root: Path, *wheels: Path) -> None:
    """A PEP 503 index of these wheels below ``root/simple``."""
    projects: dict[str, list[Path]] = {}
    for wheel in wheels:
        projects.setdefault(wheel.name.split("-")[0].replace("_", "-").lower(), []).append(wheel)
    for project, files in projects.items():
        page = root / "simple" / project
        page.mkdir(parents=True, exist_ok=True)
        links = []
        for file in files:
            (page / file.name).write_bytes(file.read_bytes())
            links.append(f'<a href="{file.name}#sha256={sha256(file)}">{file.name}</a>')
        (page / "index.html").write_text("<!doctype html><html><body>" + "\n".join(links) + "</body></html>")


def make_project(folder: Path, distribution: str, version: str = "1.0", plugin: str = "") -> Path:
    """A project that builds itself without a network, and leaves a file ``BUILT`` beside its backend when it does."""
    plugin = plugin or distribution.rsplit("-", 1)[-1]
    folder.mkdir(parents=True, exist_ok=True)
    file = f"{distribution.replace('-', '_')}-{version}-py3-none-any.whl"
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{distribution}"\nversion = "{version}"\n'
        f'[project.entry-points.icml26]\n{plugin} = "{distribution.replace("-", "_")}.plugin"\n'
    )
    (folder / "backend.py").write_text(BACKEND.format(file=file, members=wheel_members(distribution, version, plugin)))
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.strip()


def commit_all(folder: Path, message: str = "change") -> str:
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD")


class GitOverHttp(BaseHTTPRequestHandler):
    """git's own smart HTTP server behind Python's HTTP server."""

    root: Path

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunked()
        environment = os.environ | {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().splitlines() if ": " in line]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        self.send_response(status)
        for name, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _chunked(self) -> bytes:
        parts = []
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline().strip() or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
        return b"".join(parts)


def install_editable(site: Path, project: Path) -> None:
    """What an editable install leaves in a ``site-packages`` folder, without a build backend."""
    import json
    import tomllib

    metadata = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{metadata['name'].replace('-', '_')}-{metadata['version']}"
    info = site / f"{stem}.dist-info"
    info.mkdir()
    requires = "".join(f"Requires-Dist: {item}\n" for item in metadata.get("dependencies", ()))
    head = f"Metadata-Version: 2.4\nName: {metadata['name']}\nVersion: {metadata['version']}\n"
    head += f"License-Expression: {metadata['license']}\nRequires-Python: {metadata['requires-python']}\n"
    readme = (project / metadata["readme"]).read_text(encoding="utf-8")
    (info / "METADATA").write_text(f"{head}{requires}\n{readme}", encoding="utf-8")
    points = "".join(f"{name} = {value}\n" for name, value in metadata["entry-points"]["icml26"].items())
    (info / "entry_points.txt").write_text(f"[icml26]\n{points}", encoding="utf-8")
    origin = {"url": project.resolve().as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    (info / "RECORD").write_text("", encoding="utf-8")
    (site / f"{stem}.pth").write_text(f"{project.resolve() / 'src'}\n", encoding="utf-8")
