"""HTML reports of the commands: one file with interactive charts that loads nothing else."""
