"""Getting bytes to the disk so that a reader finds all of them or none, whenever the writer dies.

What is new is written under a temporary name, synced, renamed, and the folder that holds the name is
synced; after that a power cut cannot take it back. `files` does so for one file, `folders` for a folder,
`lock` lets one writer work at a time, `disk` turns what the system says into a `StorageError`. No torch
in here.
"""
