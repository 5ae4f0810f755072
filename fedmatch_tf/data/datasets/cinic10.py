"""CINIC-10: the classes of CIFAR-10, with images from ImageNet as well."""

from fedmatch_tf.data.dataset import LARGE, Dataset

CINIC10 = Dataset(
    name="cinic10",
    title="CINIC-10",
    file_name="cinic_10",
    num_classes=10,
    sizes=(180_000, 90_000),  # its validation images are training data
    image_shape=(32, 32, 3),
    files=("cinic10", "CINIC-10", "cinic-10"),
    wanted="cinic10/ and CINIC-10's folders train, valid and test, each with its class folders",
    defaults=LARGE,
    overrides={
        "sage-lc": {"labels_per_class": 45, "labeled_fraction": None},  # 900 per class in all
        "sage": {"num_rounds": 400},
        "proxyfl": {"num_rounds": 400},
    },
    place=3,
)
