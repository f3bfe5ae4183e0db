"""What a metric may return, and the keys under which a record holds it."""

from __future__ import annotations

import numpy as np
import pytest
from icml26.errors import PluginError
from icml26.metric import as_scores, takes_context, values_by_key
from icml26.specs import MetricSpec, Value

PLAIN = MetricSpec("mae-c", "f.t", "m:f")
WITH_ERROR = MetricSpec("mse", "f.t", "m:f", values=(Value(""), Value("se", error_of="")))
NAMED = MetricSpec("hits", "f.t", "m:f", values=(Value("at-1"), Value("at-10"), Value("at-10-se", error_of="at-10")))


def test_a_number_stands_under_the_name_of_the_metric() -> None:
    assert as_scores(PLAIN, 2) == {"mae-c": 2.0}
    assert as_scores(PLAIN, np.float32(0.5)) == {"mae-c": 0.5}
    assert as_scores(PLAIN, np.array(3.0)) == {"mae-c": 3.0}


def test_the_error_of_the_main_value_stands_beside_it_with_a_hyphen() -> None:
    assert as_scores(WITH_ERROR, {"": 4.0, "se": 0.5}) == {"mse": 4.0, "mse-se": 0.5}
    assert as_scores(WITH_ERROR, 4.0) == {"mse": 4.0}


def test_named_values_stand_after_a_point() -> None:
    assert as_scores(NAMED, {"at-1": 0.1, "at-10": 0.4}) == {"hits.at-1": 0.1, "hits.at-10": 0.4}


@pytest.mark.parametrize("spec", [PLAIN, WITH_ERROR, NAMED])
def test_every_key_has_a_declared_value(spec: MetricSpec) -> None:
    everything = {value.name: 1.0 for value in spec.values}
    assert list(as_scores(spec, everything)) == list(values_by_key(spec))


@pytest.mark.parametrize(
    ("spec", "returned", "named"),
    [
        (PLAIN, {"x": 1.0}, "'x'"),
        (NAMED, 1.0, "''"),
        (PLAIN, "1.0", "str"),
        (PLAIN, np.zeros(2), "ndarray"),
        (PLAIN, None, "NoneType"),
    ],
)
def test_what_is_not_declared_or_no_number_is_refused(spec: MetricSpec, returned: object, named: str) -> None:
    with pytest.raises(PluginError, match=named):
        as_scores(spec, returned)


def test_a_third_positional_parameter_asks_for_the_context() -> None:
    assert takes_context(lambda output, truth, ctx: 0.0)
    assert not takes_context(lambda output, truth: 0.0)
    assert not takes_context(lambda output, truth, *, scale=1.0: 0.0)
