"""Keys of other tools, GPUs that penstock lacks, and values in the place of a section."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from penstock.errors import UsageError
from penstock.graph.explain import MAIN_KEYS
from penstock.graph.foreign import BY_SECTION, NOWHERE, OPTIONS, PLACES, fix_of_key, place_of_key
from penstock.graph.model import Graph
from penstock.hardware import GPUS
from penstock.hardware.gpus import meant_gpu, requested_gpu
from penstock.strict_yaml.problems import model_at
from tests.graph.texts import HEAD, problems_of

GRAPH = HEAD + "prefill: {}\ndecode: {}\n"
GRAPH_GPUS = ("h100", "h200", "b200", "b300", "gb200", "gb300")


def fix_of(place: str, value: str = "1") -> str:
    (problem,) = problems_of(GRAPH, [f"{place}={value}"])
    assert problem.place == place
    assert problem.message == f"unknown key `{place.rpartition('.')[2]}`"
    return problem.fix


@pytest.mark.parametrize(
    ("place", "fix"),
    [
        ("tp", "Use `gpus` of a pool, such as `decode.gpus`, instead. It sets the tensor"),
        ("decode.tp", "Use `decode.gpus` instead. It sets the tensor parallelism, too."),
        ("decode.tensor-parallel-size", "Use `decode.gpus` instead."),
        ("prefill.tensorParallelSize", "Use `prefill.gpus` instead."),
        ("engine.tensor_parallel_size", "Use `gpus` of a pool, such as `decode.gpus`, instead."),
        ("num_gpus", "Use `gpus` of a pool, such as `decode.gpus`, instead."),
        ("gpus", "Move it to `prefill` or `decode` or `worker`."),
        ("gpu", "Use `hardware.gpu` instead."),
        ("hardware.gpus", "Use `hardware.gpus_per_node` instead."),
        ("max_model_len", "Use `model.context_length` instead."),
        ("engine.max_model_len", "Use `model.context_length` instead."),
        ("model.name", "Use `model.id` instead."),
        ("model.max_seq_len", "Use `model.context_length` instead."),
        ("model.tokenizer", "the tokenizer comes with the model files"),
        ("tokenizer", "the tokenizer comes with the model files"),
        ("name", "Remove it: the deployment has the name of the file"),
        ("namespace", "Pass --namespace to the command instead"),
        ("image", "Use `engine.image` instead."),
        ("port", "Move it to `frontend`."),
        ("host", "Pass `--host` to the command instead"),
        ("args", "Use `engine.args` instead."),
        ("version", "Use `dynamo` instead."),
        ("backend", "Use `engine.kind` instead."),
        ("engine.name", "Use `engine.kind` instead."),
        ("services", "Write the components as the sections `frontend`, `prefill` and `decode`"),
        ("router_mode", "Use `router.mode` instead."),
        ("router.router_mode", "Use `router.mode` instead."),
        ("router.kv_overlap_score_weight", "Use `router.overlap_score_credit` instead."),
        ("kv_connector", "Use `kv_transfer.backend` instead."),
        ("kv_transfer.connector", "Use `kv_transfer.backend` instead."),
        ("gpu_memory_utilization", "Move it to `engine.config`, under the name"),
        ("decode.gpuMemoryUtilization", "Move it to `decode.config`, under the name"),
        ("decode.max_num_seqs", "Move it to `decode.config`"),
        ("decode.min_replicas", "Use `decode.autoscaling.min` instead."),
        ("decode.envs", "Use `decode.env` instead."),
        ("decode.extraPodSpec", "Use `decode.pod` instead."),
        ("decode.multinode", "Use `decode.nodes` instead."),
        ("tolerations", "Use `pod` of a component, such as `decode.pod`, instead."),
        ("decode.livenessProbe", "the chart sets the probes"),
        ("accelerator_type", "Use `hardware.gpu` instead."),
        ("sla", "Use `slo` instead."),
        ("replica_count", "Use `replicas` of a pool"),
        # What it stands for is the section that it is in
        ("frontend.resources.requests", "Move what it contains to `frontend.resources`, and rem"),
        ("prefill.resources.limits", "Move what it contains to `prefill.resources`, and remove"),
        ("slo.sla", "Move what it contains to `slo`, and remove it."),
        # Typing errors
        ("decodes", "Did you mean `decode`?"),
        ("decode.replica", "Did you mean `replicas`?"),
        ("decode.replicsa", "Did you mean `replicas`?"),
        ("model.context_lenght", "Did you mean `context_length`?"),
        # Similar to nothing
        ("cluster.name", "Remove it. Keys of this section: service_account"),
        ("model.flavor", "Remove it. Keys of this section: id, path"),
    ],
)
def test_an_unknown_key_has_its_place_in_the_graph(place: str, fix: str) -> None:
    assert fix in fix_of(place)


def test_the_places_of_foreign_keys_exist() -> None:
    tables = (PLACES, *BY_SECTION.values())
    for place in (place for table in tables for place in table.values()):
        for component in ("decode", "prefill") if "{pool}" in place else ("frontend", "planner"):
            *section, name = place.format(pool=component, component=component).split(".")
            model = model_at(tuple(section), Graph) if section else Graph
            if model is not None and (component != "planner" or name != "autoscaling"):
                assert name in model.model_fields, place


def test_no_foreign_key_is_sent_to_a_section_that_it_is_in() -> None:
    """A user who follows the fix would get the same one again."""
    for section in sections_of(Graph):
        steps = tuple(section.split("."))
        known = model_at(steps, Graph)
        assert known is not None
        for key in {*PLACES, *BY_SECTION.get(section, ())} - {*known.model_fields}:
            path = (*steps, key)
            place = place_of_key(path)
            is_inside = place != "" and f"{section}.".startswith(f"{place}.")
            assert is_inside == fix_of_key(path).startswith("Move what"), path
    assert fix_of_key(("planner", "hpa")).startswith("Use `autoscaling` of a component")  # no such


def sections_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = model_at((name,), model)
        if inner is not None and field.annotation is not None:
            yield f"{above}{name}"
            yield from sections_of(inner, f"{above}{name}.")


def test_a_foreign_key_is_in_one_table_and_no_key_of_the_graph() -> None:
    assert not OPTIONS & {*PLACES, *NOWHERE}
    assert not PLACES.keys() & NOWHERE.keys()
    assert not {*PLACES, *NOWHERE, *OPTIONS} & {*Graph.model_fields} - {"monitoring"}
    for section, places in BY_SECTION.items():
        steps = ("decode",) if section == "pool" else tuple(filter(None, section.split(".")))
        model = model_at(steps, Graph) if steps else Graph
        assert model is not None
        assert not places.keys() & model.model_fields.keys(), section


@pytest.mark.parametrize(
    "name",
    [
        *("A100", "a100", "NVIDIA-A100-SXM4-80GB", "A10", "A10G", "L4", "L40S", "V100", "T4"),
        *("H20", "H800", "GH200", "H100 NVL", "NVIDIA-H100-PCIe", "RTX 4090", "RTX-PRO-6000"),
        *("MI300X", "mi355x", "Gaudi3", "TPU v6e", "trainium2", "B100"),
    ],
)
def test_another_gpu_is_not_supported_and_none_is_suggested(name: str) -> None:
    assert meant_gpu(name, GRAPH_GPUS) == ""
    with pytest.raises(UsageError) as refused:
        requested_gpu(name, GRAPH_GPUS)
    (problem,) = refused.value.problems
    assert problem.message == f"{name} is not supported"
    assert problem.fix == "Use one of h100, h200, b200, b300, gb200, gb300."
    (problem,) = problems_of(GRAPH, [f"hardware.gpu={name}"])
    assert problem.message == f'"{name}" is not supported'
    assert problem.fix.startswith("If the nodes have one of h100, h200, b200, b300, gb200, gb300")


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("H100-SXM-80GB", "h100"),
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("h100_sxm", "h100"),
        ("h1000", "h100"),
        ("NVIDIA-GB200", "gb200"),
        ("B-200", "b200"),
        ("H200", "h200"),
    ],
)
def test_another_name_of_a_supported_gpu_is_recognized(name: str, gpu: str) -> None:
    assert meant_gpu(name, list(GPUS)) == gpu
    (problem,) = problems_of(GRAPH, [f"hardware.gpu={name}"])
    assert problem.fix == f"Did you mean `{gpu}`?"


@pytest.mark.parametrize("name", ["8xh200", "8 x H200", "8×NVIDIA-H200"])
def test_the_number_of_gpus_belongs_to_a_pool(name: str) -> None:
    (problem,) = problems_of(f'{GRAPH}hardware: {{gpu: "{name}"}}\n')
    assert f'got "{name}"' in problem.message
    assert problem.fix == "Write `h200`, and the GPUs of each worker in `gpus` of its pool."


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("80GB", "80Gi"),
        ("80 Gi", "80Gi"),
        ("80gib", "80Gi"),
        ("1.5tb", "1.5Ti"),
        ("512MB", "512Mi"),
    ],
)
def test_a_size_is_suggested_as_kubernetes_writes_it(text: str, fix: str) -> None:
    graph = f'{HEAD}worker: {{resources: {{memory: "{text}"}}}}\n'
    (problem,) = problems_of(graph)
    assert problem.place == "worker.resources.memory"
    assert problem.message == f'must be a Kubernetes quantity, got "{text}"'
    assert problem.fix == f'Write "{fix}".'


def test_a_version_with_a_v_is_recognized() -> None:
    (problem,) = problems_of(f"dynamo: v1.6.1\n{GRAPH}")
    assert problem.fix == "Did you mean `1.6.1`?"


def test_a_large_limit_has_all_its_digits() -> None:
    sets = ["gateway.rate_limit.requests=0", "gateway.rate_limit.unit=second"]
    (problem,) = problems_of(GRAPH, sets)
    assert problem.message == "must be an integer from 1 to 4294967295, got 0"
    assert problem.fix.startswith("Write an integer from 1 to 4294967295: ")


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("hardware: H100", 'Write `gpu: "h100"` on a line of its own below it.'),
        ("hardware: A100", "with one of h100, h200, b200, b300, gb200, gb300. A100 is not supp"),
        ("kv_transfer: NIXL", 'Write `backend: "nixl"` on a line of its own below it.'),
        ("router: kv", 'Write `mode: "kv"` on a line of its own below it.'),
        ("frontend: 2", "Write `replicas: 2` on a line of its own below it."),
        ("planner: 8", "Write `max_gpus: 8` on a line of its own below it."),
        ("gateway: true", "Give the value to one of its keys: rate_limit, timeouts,"),
    ],
)
def test_a_value_in_the_place_of_a_section_has_the_key_to_write(text: str, fix: str) -> None:
    (problem,) = problems_of(f"{GRAPH}{text}\n")
    assert problem.place == text.partition(":")[0]
    assert problem.message.startswith("must be a section of `key: value` lines, got ")
    assert fix in problem.fix


def test_the_main_keys_exist() -> None:
    for name, key in MAIN_KEYS.items():
        models = [model_at((name,), Graph)]
        models += [model_at(("decode", name), Graph), model_at(("model", "cache", name), Graph)]
        models += [model_at(("model", name), Graph), model_at(("gateway", name), Graph)]
        models += [model_at(("cluster", name), Graph)]
        sections = [model for model in models if model is not None]
        assert sections, name
        assert all(key in model.model_fields for model in sections), name
