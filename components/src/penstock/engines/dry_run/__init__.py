"""The engines' own configuration code, run without a GPU: `penstock check --engine-dry-run`."""
