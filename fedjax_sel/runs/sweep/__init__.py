"""A grid over keys of a configuration: what differs only in floats runs in one compiled program.

`grid` reads the axes, `programs` puts combinations together that share a program and fit a device, `blocks` runs them,
`layout` is the folder, `execute` all of it for the command line.
"""
