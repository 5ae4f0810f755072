"""Makes a task's partitions: `python -m data.generator --task lc-biid-c10`.

From Python: `generate(folder, spec, source)`, described in fedmatch_tf/data/generator.py.
"""

import sys

from fedmatch_tf.data.generator import difference, generate

__all__ = ["difference", "generate"]

if __name__ == "__main__":
    from fedmatch_tf.main import main

    raise SystemExit(main(["gen_data", *sys.argv[1:]]))
