"""Rules about speculative decoding."""

from penstock.checks.rules.speculation import (
    draft_settings,
    draft_targets,
    speculative_decoding,
    vllm_drafts,
)

MODULES = (speculative_decoding, draft_settings, vllm_drafts, draft_targets)
