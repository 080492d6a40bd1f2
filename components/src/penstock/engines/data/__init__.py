"""Tables generated from the engines themselves; each file says on its first key by what."""
