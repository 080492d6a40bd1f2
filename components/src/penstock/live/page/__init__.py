"""The live page in a browser: `penstock top --web`."""
