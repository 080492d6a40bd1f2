"""`penstock drill`: faults under load, evaluated only by what the clients observe."""
