"""The live view of a running graph: what `penstock top` and the page show."""
