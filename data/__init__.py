"""Doors to the data: `python -m data.generator --task TASK` makes partitions, `data.loader` reads them."""
