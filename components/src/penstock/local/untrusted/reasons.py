"""Why settings are left out, for the note."""

NOT_ALLOWED = "not on the list of allowed variables"
RUNS_CODE = "can run code on this machine"
WRITES = "writes files on this machine"
SENDS = "sends data to another machine"
READS = "lets clients read files on this machine"
SETS_ANY_FLAG = "reads more settings from a file that is not checked"
UNREADABLE = "cannot be parsed"
