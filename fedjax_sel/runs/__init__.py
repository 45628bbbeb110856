"""Runs on disk.

`files` writes files atomically, `layout` defines the contents of a run's folder, `lock` reserves it for one process,
`execute` runs a configuration in it, `pretrained` stores a model for other runs, `sweep` runs many configurations.
"""
