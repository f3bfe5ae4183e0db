"""Generic tasks that several plugins share, and the readers of the user's own files."""
