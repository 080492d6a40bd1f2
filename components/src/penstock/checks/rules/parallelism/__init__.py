"""Rules about parallelism and kernels."""
