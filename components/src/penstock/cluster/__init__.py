"""Releases on a cluster: diff, apply, rollback, status and uninstall, through Helm and the API."""
