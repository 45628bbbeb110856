"""A run on disk.

`files` writes files whole or not at all, `layout` says what a run's folder holds, `lock` keeps it for one process,
`execute` carries a configuration out in it, `pretrained` keeps a model for other runs, `sweep` runs many of them.
"""
