"""The command line. ``icml26.__main__`` is where it starts."""
