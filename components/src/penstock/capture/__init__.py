"""Turns logs of requests that a deployment served into workload traces."""

from penstock.capture.capture import Captured, FileFormat, capture_files
from penstock.capture.report import report
from penstock.capture.trace_file import LengthOption, TraceFiles, parse_lengths

__all__ = [
    "Captured",
    "FileFormat",
    "LengthOption",
    "TraceFiles",
    "capture_files",
    "parse_lengths",
    "report",
]
