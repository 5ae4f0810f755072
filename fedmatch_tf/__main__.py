"""The command line of an installation: `python -m fedmatch_tf ...`."""

from fedmatch_tf.main import command

if __name__ == "__main__":
    raise SystemExit(command())
