"""From names and settings to runs."""

from __future__ import annotations

from typing import Any

import pytest
import toy
from icml26.errors import InputError, NotApplicableError, UsageError
from icml26.plan import Choice, Planner, RunPlan, Settings, applicable, resolve_device


def plan(method: str, dataset: str = "", *, profile: str | None = None, **more: Any) -> RunPlan:
    config, dataset_config = more.pop("config", {}), more.pop("dataset_config", {})
    planner = Planner(toy.catalog(), more.pop("settings", None))
    return planner.plan(Choice(method, config, profile), Choice(dataset, dataset_config), **more)


def test_a_method_alone_gets_its_default_dataset_and_the_tasks_metrics() -> None:
    planned = plan("plain")
    assert applicable(planned).dataset == "toy/numbers"
    assert applicable(planned).metrics == ("toy/error", "toy/parts")


def test_metrics_of_method_and_reference_follow_the_tasks() -> None:
    planned = plan("shift")
    assert [item.entry.name for item in planned.metrics] == ["error", "parts", "gain"]
    assert [item.entry.name for item in planned.relative_metrics] == ["gain"]
    assert "toy/gain" not in applicable(planned).metrics


def test_what_a_metric_needs_is_scored_first_and_hidden() -> None:
    request = applicable(plan("shift", metrics=["gain"]))
    assert request.metrics == ("toy/error",)
    assert request.hidden_metrics == ("toy/error",)


def test_a_metric_whose_word_is_missing_says_so() -> None:
    planned = plan("plain", metrics=["error", "attack-error"])
    assert planned.metrics[1].missing == "needs 'attack' (planted), which toy/numbers does not provide"
    assert applicable(planned).metrics == ("toy/error",)
    with_attack = plan("plain", metrics=["attack-error"], dataset_config={"attack": "random"})
    assert applicable(with_attack).metrics == ("toy/attack-error",)


def test_a_pair_that_does_not_fit_is_known_before_any_work() -> None:
    planned = plan("needy")
    assert planned.not_applicable is not None
    assert "needs 'attack' (planted)" in planned.not_applicable
    with pytest.raises(NotApplicableError, match="not applicable") as caught:
        applicable(planned)
    assert caught.value.exit_code == 2
    assert plan("needy", dataset_config={"attack": "random"}).request is not None


def test_a_dataset_recommends_a_profile_and_it_is_said() -> None:
    planned = plan("shift")
    assert applicable(planned).config["shift"] == 2.0
    assert applicable(planned).profile == "small"
    assert "shift=2.0" in planned.notes[0]


def test_profile_none_gives_the_bare_defaults_and_a_wrong_one_is_refused() -> None:
    assert applicable(plan("shift", profile="none")).config["shift"] == 0.0
    with pytest.raises(UsageError, match="no profile 'large'; its profiles: small"):
        plan("shift", profile="large")


def test_settings_win_over_smoke_and_smoke_over_profile() -> None:
    request = applicable(plan("shift", settings=Settings(smoke=True)))
    assert (request.config["steps"], request.config["shift"], request.dataset_config["n"]) == (1, 2.0, 2)
    request = applicable(plan("shift", settings=Settings(smoke=True), config={"steps": 8}, dataset_config={"n": 9}))
    assert (request.config["steps"], request.dataset_config["n"]) == (8, 9)


@pytest.mark.parametrize(
    ("method", "dataset", "message"),
    [
        ("shfit", "", "no method 'shfit'; did you mean 'shift'"),
        ("shift", "number", "no dataset 'number'; did you mean 'numbers'"),
        ("other/shift", "", "no method 'other/shift'; did you mean 'toy/shift'"),
    ],
)
def test_unknown_names_come_with_the_nearest(method: str, dataset: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(method, dataset)


def test_unknown_metric_and_metric_options() -> None:
    with pytest.raises(UsageError, match="no metric 'eror'; did you mean 'error'"):
        plan("shift", metrics=["eror"])
    with pytest.raises(UsageError, match="does not score 'hits'"):
        plan("shift", metric_config={"hits": {"k": 1}})
    with pytest.raises(InputError, match="no option 'n2'"):
        plan("shift", dataset_config={"n2": 1})


def test_qualified_names_work() -> None:
    assert applicable(plan("toy/shift", "toy/numbers")).method == "toy/shift"
    assert applicable(plan("icml26-plugin-toy/shift")).method == "toy/shift"


def test_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="allowed: auto, cpu, cuda, mps"):
        resolve_device("gpu")


def test_a_plugin_without_an_index_has_the_same_key() -> None:
    catalog = toy.catalog()
    bare = catalog._replace(entries=tuple(entry._replace(config_schema=None) for entry in catalog.entries))
    requests = [applicable(Planner(one).plan(Choice("shift", {"shift": 1}))) for one in (catalog, bare)]
    assert requests[0].config == requests[1].config
    assert requests[0].key == requests[1].key


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, "1", True, None])
def test_what_is_no_seed_is_refused_before_any_work(seed: Any) -> None:
    with pytest.raises(UsageError, match="is not a whole number from 0 to"):
        plan("plain", seed=seed)
    assert applicable(plan("plain", seed=2**63 - 1)).seed == 2**63 - 1
