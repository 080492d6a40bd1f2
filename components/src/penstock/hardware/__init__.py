"""GPUs and their links, as data."""

from penstock.hardware.gpus import GPUS, Gpu, find_gpu, gpu_of_product

__all__ = ["GPUS", "Gpu", "find_gpu", "gpu_of_product"]
