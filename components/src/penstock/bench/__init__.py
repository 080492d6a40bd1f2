"""`penstock bench`: measure a running endpoint under a workload, or compare two, with AIPerf.

`run.py` runs AIPerf (`aiperf.py`), `records.py` and `measurement.py` compute the figures, and
`compare.py` divides the requests of two targets into slices. `methods` has the public methods,
`shadow` compares responses, and `calibration.py` corrects predictions by measurements.
"""
