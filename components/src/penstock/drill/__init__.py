"""`penstock drill`: faults under load, judged only by what the clients observe."""
