"""Tables generated from the engines; the first key of each names the script."""
