"""Substitutes for packages that the configuration of Dynamo's planner imports but does not use.

ai-dynamo 1.6.1 does not require scikit-learn, and the release of aisimulate-core is a placeholder.
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
