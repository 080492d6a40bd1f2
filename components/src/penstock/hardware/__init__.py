"""GPUs and what connects them, as data: the facts that checks and the memory model stand on."""

from penstock.hardware.gpus import GPUS, Gpu, gpu_of_product

__all__ = ["GPUS", "Gpu", "gpu_of_product"]
