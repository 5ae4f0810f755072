"""CIFAR-100."""

from fedmatch_tf.data.dataset import LARGE, Dataset, keras_download

_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

C100 = Dataset(
    name="c100",
    title="CIFAR-100",
    file_name="cifar_100",
    num_classes=100,
    class_names=tuple(_NAMES.split()),
    sizes=(50_000, 10_000),
    image_shape=(32, 32, 3),
    files=(
        "cifar100.npz",
        "cifar-100-python",
        "cifar-100-binary",
        "cifar-100-python.tar.gz",
        "cifar-100-binary.tar.gz",
    ),
    keras_files=("cifar-100-python", "cifar-100-python-target/cifar-100-python", "cifar-100-python.tar.gz"),
    wanted="CIFAR-100's python or binary files (cifar-100-python/, or the tar.gz), or cifar100.npz",
    download=keras_download("cifar100"),
    defaults=LARGE,
    overrides={
        "semifl-ls": {"labels_per_class": 100},  # 10,000 labels in all
        "sage": {"num_rounds": 500},
        "proxyfl": {"num_rounds": 500},
    },
    place=1,
)
