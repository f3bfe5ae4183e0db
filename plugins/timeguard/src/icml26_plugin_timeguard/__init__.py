"""TimeGuard."""
