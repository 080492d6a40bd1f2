"""`penstock plan`: from traffic and promises to a graph, with the replays that speak for it."""
