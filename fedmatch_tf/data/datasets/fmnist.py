"""Fashion-MNIST."""

from pathlib import Path

from fedmatch_tf.data.dataset import LARGE, Dataset, keras_download

FMNIST = Dataset(
    name="fmnist",
    title="Fashion-MNIST",
    file_name="fashion_mnist",
    num_classes=10,
    class_names=("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
    sizes=(60_000, 10_000),
    image_shape=(28, 28),
    pads=True,
    files=("fashion_mnist", "fashion_mnist.npz"),
    loose="*-idx?-ubyte*",
    keras_files=("fashion-mnist",),
    elsewhere=((Path("/usr/share/datasets/fashion-mnist"), "Debian's dataset-fashion-mnist"),),
    wanted="fashion_mnist/ and its four IDX files, or install Debian's dataset-fashion-mnist",
    download=keras_download("fashion_mnist"),
    checksum="934f3500fd399dd42ff58ebc4bc3c558c3e497052c8674425a66b408e22fd6d2",  # that of Debian's package
    defaults={**LARGE, "num_clients": 10, "num_rounds": 100},
    overrides={"paper": {"num_test": 3500, "num_valid": 3500}},  # 63,000 remain for training
    in_paper=True,
    place=4,
)
