"""`penstock bench`: measure a running endpoint under a workload, with AIPerf as load generator."""
