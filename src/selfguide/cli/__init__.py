"""The command line: parse, call the Python API, render. One small file a command; no logic, and no torch until a command runs."""
