"""`penstock check`: find errors and risks in a graph or a manifest before it uses a GPU."""
