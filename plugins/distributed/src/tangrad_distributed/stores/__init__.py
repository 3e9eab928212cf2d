"""Where ranks that do not know each other yet leave bytes: in a process, a file, over TCP."""
