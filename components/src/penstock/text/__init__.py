"""Texts for people: names, numbers, commands of penstock, and lines that fit a terminal.

It imports only the standard library; tables wait for rich until they are made.
"""
