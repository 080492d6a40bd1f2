"""GPUs and their links, as data; used by checks and memory."""

from penstock.hardware.gpus import GPUS, Gpu, find_gpu, gpu_of_product

__all__ = ["GPUS", "Gpu", "find_gpu", "gpu_of_product"]
