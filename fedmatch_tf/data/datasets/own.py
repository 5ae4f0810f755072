"""A user's own images, given by --source."""

from fedmatch_tf.data.dataset import FEW_LABELS, SMALL, Dataset

OWN = Dataset(
    name="own",
    title="your own images, given by --source",
    file_name="own",
    defaults=SMALL,
    overrides=FEW_LABELS,
    place=7,
)
