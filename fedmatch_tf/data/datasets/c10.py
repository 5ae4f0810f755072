"""CIFAR-10."""

from fedmatch_tf.data.dataset import LARGE, Dataset, keras_download

C10 = Dataset(
    name="c10",
    title="CIFAR-10",
    file_name="cifar_10",
    num_classes=10,
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    sizes=(50_000, 10_000),
    image_shape=(32, 32, 3),
    files=(
        "cifar10.npz",
        "cifar-10-batches-py",
        "cifar-10-batches-bin",
        "cifar-10-python.tar.gz",
        "cifar-10-binary.tar.gz",
    ),
    keras_files=("cifar-10-batches-py", "cifar-10-batches-py-target/cifar-10-batches-py", "cifar-10-batches-py.tar.gz"),
    wanted="cifar10.npz (x_train, y_train, x_test, y_test) or CIFAR-10's python or binary batches",
    download=keras_download("cifar10"),
    checksum="b16dd405789d423f76919f61e103c3199c7b2dd0c7da8b27d752a9ab9c80dba9",
    defaults=LARGE,
    overrides={
        "paper": {"num_test": 3000, "num_valid": 3000},  # 54,000 remain for training
        "semifl-ls": {"labels_per_class": 400},  # 4000 labels in all
        "sage": {"num_rounds": 300},
        "proxyfl": {"num_rounds": 300},
    },
    in_paper=True,
    place=0,
)
