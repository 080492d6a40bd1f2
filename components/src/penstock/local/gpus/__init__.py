"""The GPUs of this machine: read from the driver, assigned to replicas, reserved per graph."""
