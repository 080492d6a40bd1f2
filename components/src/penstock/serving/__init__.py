"""The understood deployment: workers, their settings, router, planner and memory.

`understand` builds a `ServingDeployment` from a source; checks, simulate, plan and cluster use it.
"""
