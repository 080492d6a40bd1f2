"""The deployment manifest, and how its processes are started."""
