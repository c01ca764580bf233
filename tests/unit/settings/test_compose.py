from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from toolshift.settings.axes import expand_axes, with_value
from toolshift.settings.checks import MEASURE, measure_problem
from toolshift.settings.compose import difference_from_defaults, load_settings, sweep_jobs
from toolshift.settings.errors import ConfigError
from toolshift.settings.options import conf_folder, groups, load_model, load_table_spec, model_names, option_body
from toolshift.settings.schema import Settings
from toolshift.settings.tree import as_mapping, difference

CONF = conf_folder()
EXPERIMENTS = sorted(file.stem for file in (CONF / "experiment").glob("*.yaml"))
TABLES = sorted(file.stem for file in (CONF / "tables").glob("*.yaml"))
FROZEN = ["random", "semantic_cosine", "bm25", "endpoint_schema_match", "rrf", "cosine_noise", "candidate_only"]

SettingsOf = Callable[..., Settings]


def problems_of(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_settings("train", overrides)
    return caught.value.problems


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("extra", [[], ["debug=tiny"], ["data=real", "data.root=somewhere"], ["runtime=gpu"]])
def test_every_experiment_composes_and_validates(name: str, extra: list[str]) -> None:
    settings = load_settings("train", [f"experiment={name}", *extra])
    assert settings.name == name
    assert expand_axes(settings)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_opens_with_claim_command_cost_expectation(name: str) -> None:
    head = (CONF / "experiment" / f"{name}.yaml").read_text().split("defaults:")[0]
    words = [line.split()[1] for line in head.splitlines() if line.startswith("# ") and line[2] != " "]
    assert words == ["@package", "Claim", "Command", "Cost", "Expectation"]


@pytest.mark.parametrize(
    ("group", "option"),
    [(group, option) for group, options in groups(CONF).items() for option in options if group != "experiment"],
)
def test_every_option_composes(group: str, option: str) -> None:
    extra = {"real": ["data.root=somewhere"], "sentence_transformer": ["encoder.params.path=somewhere"]}
    settings = load_settings("train", [f"{group}={option}", *extra.get(option, [])])
    assert settings.models


def test_the_lodo_experiment(settings_of: SettingsOf) -> None:
    settings = settings_of("experiment=lodo")
    assert list(settings.models) == [*FROZEN, "tact"]
    assert list(settings.view.views) == ["natural", "semantic", "context", "mixed"]
    assert settings.seeds == (42, 43, 44)
    assert settings.compare == {"protocol.purge": ("none", "gold")}
    assert (settings.data.source, settings.data.world) == ("sample", "default")
    assert (settings.data.sample_size, settings.data.sample_seed) == ("small", 0)


def test_debug_tiny_limits_and_needs_no_weights(settings_of: SettingsOf) -> None:
    tiny = settings_of("experiment=lodo", "debug=tiny")
    assert (tiny.debug.max_tasks, tiny.debug.max_targets, tiny.evaluation.replicates) == (300, 4, 200)
    assert tiny.encoder.name == "hashing"
    assert settings_of("debug=tiny", "evaluation.replicates=7").evaluation.replicates == 7
    assert settings_of("debug=tiny", "encoder=minilm").encoder.name == "minilm"


def test_the_reference_is_always_run(settings_of: SettingsOf) -> None:
    assert list(settings_of("model=bm25").models) == ["semantic_cosine", "bm25"]
    assert list(settings_of("model=[bm25,semantic_cosine]").models) == ["bm25", "semantic_cosine"]
    assert list(settings_of("model=bm25", "reference=bm25").models) == ["bm25"]


def test_the_device_of_the_runtime_reaches_the_encoder(settings_of: SettingsOf) -> None:
    assert settings_of("runtime=gpu").encoder.params["device"] == "cuda"


def test_the_root_of_real_data(settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSHIFT_DATA", "from-the-environment")
    assert settings_of("data=real").data.root == "from-the-environment"
    assert settings_of("data=real", "data.root=given").data.root == "given"
    monkeypatch.delenv("TOOLSHIFT_DATA")
    assert "TOOLSHIFT_DATA" in problems_of("data=real")[0]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["view.length=1"], "view.length: a list needs at least 2"),
        (["view.length=8"], "view.hard: must be at least 0 and below view.length=8, got 8"),
        (["view.hard=-1"], "view.hard"),
        (["view.top=0"], "view.top: must be at least 1"),
        (["view.min_available=1"], "view.min_available"),
        (["view.duplicate_cosine=1.5"], "view.duplicate_cosine: must lie between 0 and 1"),
        (["view.argument_overlap=.nan"], "view.argument_overlap"),
        (["view=[]"], "view.views: at least one view"),
        (["protocol.near_cosine=-0.5"], "protocol.near_cosine"),
        (["encoder.max_truncated_share=2"], "encoder.max_truncated_share"),
        (["evaluation.confidence=1"], "evaluation.confidence"),
        (["evaluation.replicates=0"], "evaluation.replicates"),
        (["evaluation.measures=[]"], "evaluation.measures: the list is empty"),
        (["evaluation.measures=[MRR,MRR]"], "evaluation.measures: a value appears twice"),
        (["evaluation.measures=[NDCG]"], "did you mean 'NDCG@5'"),
        (["evaluation.slices=[al]"], "evaluation.slices[0]: 'al' is not an option; did you mean 'all'?"),
        (["runtime.max_pairs_in_memory=0"], "runtime.max_pairs_in_memory"),
        (["debug.max_tasks=0"], "debug.max_tasks"),
        (["seeds=[1,1]"], "seeds: a value appears twice"),
        (["seeds=[-1]"], "seeds: must not be negative"),
        (["name=a/b"], "name: 'a/b' names a folder"),
        (["reference=bm52"], "reference: there is no model 'bm52'; did you mean 'bm25'?"),
        (["data.root=x"], "did you mean data=real data.root=x?"),
        (["data.world=popularity"], "data.world: 'popularity' is not an option; did you mean 'popularity_only'?"),
        (["data.sample_size=smal"], "data.sample_size: 'smal' is not an option; did you mean 'small'?"),
        (["data.sample_seed=-1"], "data.sample_seed: must be at least 0, got -1"),
        (
            ["data=real", "data.root=x", "data.world=no_context_gap"],
            "did you mean data=sample data.world=no_context_gap?",
        ),
        (["models.bm25.name=other"], "models.bm25.name: must be 'bm25'"),
        (["models.bm25.target=nonsense"], "models.bm25.target: expected package.module:name"),
        (["models.bm25.params.k1=abc"], "models.bm25.params.k1: expected a number, got 'abc'"),
        (["models.candidate_only.params.C=null"], "models.candidate_only.params.C: expected a number, got None"),
        (["models.cosine_noise.params.scales=[a]"], "models.cosine_noise.params.scales: in the list"),
        (["models.rrf.params.over=[bm52]"], "models.rrf.params.over: no model 'bm52'; did you mean 'bm25'?"),
        (["+models.bm25.params.k2=1"], "models.bm25.params.k2: no such parameter; did you mean 'k1'?"),
        (["~models.bm25.params.b"], "models.bm25.params.b: this parameter is missing"),
        (["+models.bm25.grid={k2:[1]}"], "models.bm25.grid.k2: bm25 has no such parameter"),
        (["+models.bm25.grid={k1:[a]}"], "models.bm25.grid.k1: expected a number"),
        (["+models.bm25.grid={k1:[]}"], "models.bm25.grid.k1: the list is empty"),
        (["dataset.options.template=3"], "dataset.options.template: expected text, got 3"),
        (["encoder.name=mini"], "encoder.name: there is no conf/encoder/mini.yaml"),
        (["encoder.params.batch_size=big"], "encoder.params.batch_size: expected a whole number"),
        (["~protocol"], "protocol: this key is missing"),
        (["protocol.purge=soft"], "protocol.purge: 'soft' is not an option"),
        (["+compare={view.lenth:[3]}"], "compare: view.lenth: no such key; did you mean 'length'?"),
        (["+compare={view.length:[1,20]}"], "compare: view.length: a list needs at least 2"),
        (["+compare={view.universe:[domian]}"], "compare: view.universe: 'domian' is not an option"),
        (["+compare={view.universe:[]}"], "compare.view.universe: the list is empty"),
        (["+compare={view.universe:domain}"], "compare.view.universe: expected a list"),
        (["+compare={models.bm25.params.k1:[a]}"], "compare: models.bm25.params.k1: expected a number"),
        (["+compare={runtime.device:[cpu]}"], "compare.runtime.device: this key names a run"),
        (["+compare={view.length:[10,20]}"], "compare.view.length: a table has no column for it; use a sweep (-m)"),
        (["nonsense"], "'nonsense' is not an override"),
        (["model=bm25,rrf"], "several values need -m"),
    ],
)
def test_contradictions_and_bad_values(overrides: list[str], expected: str) -> None:
    problems = problems_of(*overrides)
    assert any(expected in problem for problem in problems), problems


def test_missing_values_are_named() -> None:
    assert problems_of("encoder=sentence_transformer") == (
        "encoder.params.path: a value must be given, for example encoder.params.path=VALUE",
    )


def test_an_experiment_cannot_smuggle_in_a_parameter(tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    _copy(CONF, folder)
    text = "# @package _global_\nmodels:\n  bm25:\n    params:\n      k2: 3\n"
    (folder / "experiment" / "typo.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"models\.bm25\.params\.k2: no such parameter"):
        load_settings("train", ["experiment=typo"], folder=folder)


def test_an_experiment_may_define_a_row_in_place(tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    _copy(CONF, folder)
    row = "{name: bm25_flat, target: 'a.b:C', params: {k1: 0.1}, grid: {}, stochastic: false}"
    (folder / "experiment" / "row.yaml").write_text(f"# @package _global_\nmodels:\n  bm25_flat: {row}\n")
    settings = load_settings("train", ["experiment=row"], folder=folder)
    assert settings.models["bm25_flat"].params == {"k1": 0.1}


def test_axes_expand_in_order_and_leave_no_trace(settings_of: SettingsOf) -> None:
    settings = settings_of("+compare={protocol.purge:[none,gold],view.miner:[union,dense]}")
    variants = expand_axes(settings)
    cells = [(v.protocol.purge, v.view.miner) for v in variants]
    assert cells == [("none", "union"), ("none", "dense"), ("gold", "union"), ("gold", "dense")]
    assert all(v.compare == {} for v in variants)
    assert variants[0] == dataclasses.replace(settings, compare={})


def test_an_overridden_axis_collapses(settings_of: SettingsOf) -> None:
    settings = settings_of("protocol.purge=near", "+compare={protocol.purge:[none,gold],view.miner:[union,dense]}")
    cells = [(v.protocol.purge, v.view.miner) for v in expand_axes(settings, ["protocol.purge"])]
    assert cells == [("near", "union"), ("near", "dense")]


def test_an_axis_may_be_a_parameter(settings_of: SettingsOf) -> None:
    settings = dataclasses.replace(settings_of(), compare={"models.bm25.params.k1": (0.9, 1.5)})
    variants = expand_axes(settings)
    assert [v.models["bm25"].params["k1"] for v in variants] == [0.9, 1.5]
    assert [v.models["bm25"].params["b"] for v in variants] == [0.75, 0.75]


def test_no_axis_is_one_variant(settings_of: SettingsOf) -> None:
    settings = settings_of()
    assert expand_axes(settings) == [settings]


def test_with_value_refuses_what_the_config_refuses(settings_of: SettingsOf) -> None:
    settings = settings_of()
    assert with_value(settings, "view.length", 10).view.length == 10
    for key, value in [
        ("view.lenght", 10),
        ("view.length", "ten"),
        ("view.length.x", 1),
        ("models.bm25.params.k1", "a"),
    ]:
        with pytest.raises(ConfigError):
            with_value(settings, key, value)


def test_the_mapping_is_sorted_plain_and_independent_of_order(settings_of: SettingsOf) -> None:
    first = as_mapping(settings_of("model=[random,bm25]"))
    second = as_mapping(settings_of("model=[bm25,random]"))
    assert json.dumps(first) == json.dumps(second)

    def keys_sorted(node: Any) -> bool:
        return not isinstance(node, dict) or (list(node) == sorted(node) and all(map(keys_sorted, node.values())))

    assert keys_sorted(first)
    assert first["view"]["length"] == 20


def test_the_mapping_without_keys(settings_of: SettingsOf) -> None:
    plain = as_mapping(settings_of(), without=["paths", "runtime", "data.root"])
    assert {"paths", "runtime"}.isdisjoint(plain)
    assert "root" not in plain["data"]
    assert "strict" in plain["data"]
    with pytest.raises(KeyError):
        as_mapping(settings_of(), without=["data.rot"])


def test_the_difference_from_defaults(settings_of: SettingsOf) -> None:
    assert difference_from_defaults(settings_of()) == ()
    lines = list(map(str, difference_from_defaults(settings_of("view.length=10", "model=[random,bm25]", "debug=tiny"))))
    assert "view.length: 20 -> 10" in lines
    assert "models.rrf: (present) -> (absent)" in lines
    assert "debug.max_tasks: null -> 300" in lines
    assert not any(line.startswith("models.bm25") for line in lines)
    one = settings_of("seeds=[1]")
    assert [str(d) for d in difference(one, settings_of())] == ["seeds: [42, 43, 44] -> [1]"]


def test_sweep_jobs_hold_every_choice() -> None:
    jobs = sweep_jobs(["model=bm25,rrf", "view.length=10,20,30", "experiment=lodo"])
    assert jobs == [
        ["model=bm25", "view.length=10", "experiment=lodo"],
        ["model=rrf", "view.length=20", "experiment=lodo"],
        ["model=rrf", "view.length=30", "experiment=lodo"],
    ]
    found = [job[0] for job in sweep_jobs(["model=glob(semantic*)"])]
    assert found == ["model=semantic_cosine", "model=semantic_cosine_aligned"]
    assert len(sweep_jobs(["view.seed=range(0,100)"])) == 24
    assert sweep_jobs([]) == [[]]


@pytest.mark.parametrize("name", ["MRR", "RR", "MRR@10", "NDCG@5", "NDCG@10", "HR@3", "R@5", "P@1"])
def test_measures_that_are_accepted(name: str, settings_of: SettingsOf) -> None:
    assert settings_of(f"evaluation.measures=[{name}]").evaluation.measures == (name,)


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("NDGC@5", "NDCG@5"),
        ("NDCG@0", "NDCG@5"),
        ("ndcg@10", "NDCG@10"),
        ("MMR", "MRR"),
        ("HR@x", "HR@5"),
        ("RR@3", "RR"),
        ("MRR@", "MRR"),
        ("", "HR@5"),
    ],
)
def test_measures_that_are_refused(name: str, best: str) -> None:
    assert not MEASURE.fullmatch(name)
    assert f"did you mean {best!r}?" in measure_problem(name)
    assert MEASURE.fullmatch(best)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_spec_loads(name: str) -> None:
    spec = load_table_spec(name)
    assert spec.name == name
    assert {spec.placebo, spec.artefact_control} <= set(model_names(CONF))


def test_a_table_spec_is_strict(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'lodo'"):
        load_table_spec("lood")
    _copy(CONF, tmp_path)
    file = tmp_path / "tables" / "lodo.yaml"
    file.write_text(file.read_text().replace("power: 0.8", "power: 8\nextra: 1").replace("alpha: 0.05\n", ""))
    with pytest.raises(ConfigError, match=r"lodo\.yaml\.extra: no such key(.|\n)*alpha: this key is missing"):
        load_table_spec("lodo", folder=tmp_path)


def test_a_model_by_name() -> None:
    assert load_model("rrf").params == {"k": 60, "over": ("semantic_cosine", "bm25")}
    assert set(FROZEN) < set(model_names(CONF))
    with pytest.raises(ConfigError, match="did you mean 'bm25'"):
        load_model("bm52")
    with pytest.raises(ConfigError, match="no model 'frozen'"):
        load_model("frozen")


def _bodies() -> list[tuple[str, Mapping[str, Any]]]:
    pairs: list[tuple[str, Mapping[str, Any]]] = []
    for group in ("dataset", "encoder", "model", "protocol", "view"):
        bodies = {option: option_body(CONF, group, option) or {} for option in groups(CONF)[group]}
        pairs += [(f"{group}/{option}", body) for option, body in bodies.items() if "target" in body]
    return pairs


@pytest.mark.parametrize(("option", "body"), _bodies(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_target_exists_and_takes_its_parameters(option: str, body: Mapping[str, Any]) -> None:
    module, _, name = body["target"].partition(":")
    target = getattr(importlib.import_module(module), name)
    accepted = inspect.signature(target).parameters
    assert set(body.get("params", {})) <= set(accepted), f"conf/{option}.yaml lists a parameter that {name} lacks"


def _copy(source: Path, destination: Path) -> None:
    for file in sorted(source.rglob("*.yaml")):
        copy = destination / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text())
