"""COVID-19 Radiography Database: X-rays in folders by class."""

from fedmatch_tf.data.dataset import FEW_LABELS, SMALL, Dataset

COVID = Dataset(
    name="covid",
    title="COVID-19 radiography",
    file_name="covid",
    num_classes=3,
    sizes=(2_905, 0),
    files=("covid",),
    wanted="covid/ and its class folders COVID-19, NORMAL and Viral Pneumonia (COVID-19 Radiography Database)",
    defaults={**SMALL, "num_test": 300, "num_valid": 300},
    overrides=FEW_LABELS,
    in_paper=True,
    place=5,
)
