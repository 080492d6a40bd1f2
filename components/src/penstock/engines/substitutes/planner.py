"""Stands in for what Dynamo's planner computes with: its configuration imports it, and uses none.

scikit-learn is no declared need of ai-dynamo 1.6.1, and aisimulate-core's release is a placeholder.
"""

from __future__ import annotations

from penstock.engines.substitutes import Substitutes

MODULES: Substitutes = {
    "sklearn.linear_model": {"LinearRegression": object},
    "aisimulate_core.sdk": {
        "ForwardPassPerfModelConfig": object,
        "RustForwardPassPerfModel": object,
    },
}
