"""``icml26`` and ``python -m icml26``: run a command, turn every end of it into an exit code and at most one message."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence

from icml26.cli.output import GlobalOptions, Output, secure_descriptors, set_console, split_global_options
from icml26.errors import Icml26Error

EXIT_BUG = 3
EXIT_ENVIRONMENT = 4
EXIT_INTERRUPTED = 130
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default); the exit code."""
    secure_descriptors()
    output = Output()
    try:
        options, rest = split_global_options(sys.argv[1:] if arguments is None else arguments)
        output = Output(options)
        set_console(output)
        code = _run(rest, options, output)
        output.finish()
    except BrokenPipeError:
        output.abandon()
        code = 0
    except KeyboardInterrupt:
        output.note("interrupted")
        code = EXIT_INTERRUPTED
    except Icml26Error as error:
        _show_traceback(output)
        output.error(str(error))
        code = error.exit_code
    except OSError as error:
        _show_traceback(output)
        output.abandon()
        code = _disk_error(error, output)
    except Exception as error:  # noqa: BLE001 - the last place where a bug can get a message instead of a traceback
        _show_traceback(output)
        code = _bug(error, output)
    return code


def _disk_error(error: OSError, output: Output) -> int:
    """A full or failing disk (or standard output on one) is the machine's; any other OSError that came this far is ours."""
    if error.errno in _DISK:
        place = f"{error.filename}: " if error.filename else ""
        output.error(f"{place}nothing more can be written there ({error.strerror})")
        return EXIT_ENVIRONMENT
    return _bug(error, output)


def _bug(error: Exception, output: Output) -> int:
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    output.error(f"{text} (this is a bug of icml26; --traceback shows where, please report it)")
    return EXIT_BUG


def _run(arguments: Sequence[str], options: GlobalOptions, output: Output) -> int:
    from icml26.cli.fast import answer

    # What the fast commands read lives until the process ends; looking through it for garbage, at the end too, only
    # takes time.
    gc.disable()
    try:
        code = answer(arguments, os.environ, output)
    finally:
        gc.freeze()
        gc.enable()
    if code is None:
        from icml26.cli.app import run

        code = run(arguments, options)
    return code


def _show_traceback(output: Output) -> None:
    if output.options.traceback:
        import traceback

        output.note(traceback.format_exc())


if __name__ == "__main__":
    sys.exit(main())
