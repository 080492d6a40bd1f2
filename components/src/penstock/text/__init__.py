"""Texts for people: names, numbers, commands of penstock, and lines that fit a terminal.

It imports only the standard library; rich is imported when a table is printed.
"""
