"""The datasets, one file each."""

from fedmatch_tf.base.plugins import entries
from fedmatch_tf.data.dataset import Dataset

DATASETS = entries(__name__, Dataset)
