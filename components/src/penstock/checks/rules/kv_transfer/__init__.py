"""Rules about the KV transfer between prefill and decode workers."""
