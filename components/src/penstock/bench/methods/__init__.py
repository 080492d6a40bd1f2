"""Public benchmark methods: what they send, and how they evaluate it (docs/methods.md)."""
