"""FedMatch in TensorFlow: federated semi-supervised learning with inter-client consistency and disjoint learning."""

from fedmatch_tf.config.version import VERSION as __version__

__all__ = ["__version__"]
