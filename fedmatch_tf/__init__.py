"""FedMatch in TensorFlow: federated semi-supervised learning with inter-client consistency and disjoint learning."""

__version__ = "0.3.0"
