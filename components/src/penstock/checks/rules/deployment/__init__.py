"""Rules about the deployment manifest and how its processes are started."""
