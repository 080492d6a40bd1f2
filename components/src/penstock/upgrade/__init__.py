"""`penstock upgrade`: move a graph from one version of Dynamo to another."""
