"""Which settings of a manifest may reach a process on this machine.

In a pod, a manifest can set any variable and any flag: the container is the boundary. Here the
processes run as the user, so settings that run code, write files or send data elsewhere are left
out: variables by an allow-list, flags by a deny-list.
"""

from penstock.local.untrusted.arguments import safe_arguments
from penstock.local.untrusted.variables import safe_variables

__all__ = ["safe_arguments", "safe_variables"]
