"""Backdoor attacks on a training series: where to inject, what trigger to write, what pattern to teach."""
