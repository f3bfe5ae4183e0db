"""Registries of plugins: read, validate, merge, search, install.

A registry is one TOML file (``schema = 1``) that anybody can publish. Nothing that it says reaches a command line before it
was matched against the allow-lists of ``icml26.registry.rules``.
"""
