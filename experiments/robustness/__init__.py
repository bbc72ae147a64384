"""Commands that are killed, starved of disk, given damaged files and fed nonsense; the outcomes are counted."""
