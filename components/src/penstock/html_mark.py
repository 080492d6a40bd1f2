"""What stands at the beginning of every HTML report, so that a report replaces only reports."""

HTML_MARK = '<meta name="generator" content="penstock">'
