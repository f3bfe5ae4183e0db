"""The conformance kit."""

from icml26.testing import conformance_tests

test_conformance = conformance_tests("subspace-sae")
