"""Why settings are left out, for the note."""

NO_SETTING = "not read by Dynamo or the engine"
RUNS_CODE = "can run code on this machine"
WRITES = "writes to a path of this machine"
SENDS = "sends data to another machine"
READS = "lets clients read files of this machine"
SETS_ANY_FLAG = "names a file that can set any flag and is not in the manifest"
UNREADABLE = "cannot be parsed"
