"""Replay of a deployment in virtual time: Dynamo's router, mock engines, measured kernels."""
