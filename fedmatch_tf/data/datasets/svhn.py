"""SVHN, house numbers in the cropped format."""

from fedmatch_tf.data.dataset import LARGE, Dataset

SVHN = Dataset(
    name="svhn",
    title="SVHN, house numbers",
    file_name="svhn",
    num_classes=10,
    class_names=tuple("0123456789"),
    sizes=(73_257, 26_032),
    num_extra=531_131,
    image_shape=(32, 32, 3),
    files=("svhn", "SVHN"),
    wanted="svhn/ and train_32x32.mat, test_32x32.mat and, if wanted, extra_32x32.mat in it",
    defaults=LARGE,
    overrides={
        "semifl-ls": {"labels_per_class": 100},  # 1000 labels in all
        "sage-lc": {"labels_per_class": 23, "labeled_fraction": None},  # 460 per class in all
        "sage": {"num_rounds": 150},
        "proxyfl": {"num_rounds": 150},
    },
    place=2,
)
