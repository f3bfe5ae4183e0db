"""The errors that users see: each message says what happened, where, and what to do."""

from __future__ import annotations


class Icml26Error(Exception):
    """Base of every error that icml26 raises on purpose."""

    exit_code = 1


class UsageError(Icml26Error):
    """A wrong name, option or config value: nothing was started."""

    exit_code = 2


class InputError(UsageError):
    """The user's data or config cannot be used; a run that raises it is recorded as ``refused``."""


class NotApplicableError(UsageError):
    """A method and a dataset (or metric) that do not fit, known before any work."""


class PluginError(Icml26Error):
    """A plugin breaks its contract or cannot be loaded."""

    exit_code = 1


class EnvironmentError_(Icml26Error):  # noqa: N801, N818 - the builtin owns the bare name
    """Something outside the run failed: network, installer, disk, environment."""

    exit_code = 4


class StoreError(EnvironmentError_):
    """The store of records cannot be read or written."""
