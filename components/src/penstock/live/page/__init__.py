"""The live page in a browser: `penstock page`."""
