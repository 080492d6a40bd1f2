"""Router, workers and graph use the same block size: otherwise no prefix is ever found."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

ROUTER = "dynamo_frontend_model_kv_cache_block_size"
# Workers that export it as a label of an info metric.
WORKERS = {"vllm:cache_config_info": "block_size", "llamacpp_config_info": "block_size"}


def probe(target: ProbeTarget) -> ProbeResult:
    metrics = target.metrics()
    sizes = {"router": {int(s.value) for s in metrics.find(ROUTER)}}
    sizes["workers"] = {
        int(sample.labels[label])
        for name, label in WORKERS.items()
        for sample in metrics.find(name)
        if sample.labels.get(label, "").isdigit()
    }
    if target.expected is not None and target.expected.block_size is not None:
        sizes["graph"] = {target.expected.block_size}
    known = {name: size for name, size in sizes.items() if size}
    listed = ", ".join(f"{name} {'/'.join(map(str, sorted(s)))}" for name, s in known.items())
    if "router" not in known:
        return cannot_tell(f"the frontend does not export {ROUTER}")
    if len(set.union(*known.values())) > 1:
        return failed(
            f"tokens per block: {listed}",
            "Remove --kv-cache-block-size from frontend.args, or set one block size in all pools.",
        )
    if len(known) < 2:
        return cannot_tell(f"tokens per block: {listed}; no other component exports it")
    return passed(f"tokens per block: {listed}")
