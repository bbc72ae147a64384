"""Commands that are killed, run two at once, starved of disk, given damaged files and fed nonsense; the outcomes are counted."""
