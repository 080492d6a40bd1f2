"""Router and workers count blocks of one size: else no prefix is ever found."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

ROUTER = "dynamo_frontend_model_kv_cache_block_size"
# Workers that say it in a label of an info metric.
WORKERS = {"vllm:cache_config_info": "block_size"}


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
    known = {who: size for who, size in sizes.items() if size}
    told = ", ".join(f"{who} {'/'.join(map(str, sorted(size)))}" for who, size in known.items())
    if "router" not in known:
        return cannot_tell("the frontend exports no block size", f"metric {ROUTER}")
    if len(set.union(*known.values())) > 1:
        return failed(
            f"tokens in a block: {told}",
            "remove --kv-cache-block-size from frontend.args, or set the size of every pool alike",
        )
    if len(known) < 2:
        return cannot_tell(f"tokens in a block: {told}; nothing else says it")
    return passed(f"tokens in a block: {told}")
