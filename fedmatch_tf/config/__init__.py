"""What a run is: its settings, their defaults and rules, and what may change when it goes on."""

from fedmatch_tf.base.errors import ConfigError
from fedmatch_tf.config.defaults import changed_settings, combinations, depends_on, make_config
from fedmatch_tf.config.models import MODELS
from fedmatch_tf.config.profiles import PROFILES
from fedmatch_tf.config.record import DATA, Config, settings, without_effect
from fedmatch_tf.config.rules import SCENARIOS, Setting, check_value, flag, from_text, one_of

__all__ = [
    "DATA",
    "MODELS",
    "PROFILES",
    "SCENARIOS",
    "Config",
    "ConfigError",
    "Setting",
    "changed_settings",
    "check_value",
    "combinations",
    "depends_on",
    "flag",
    "from_text",
    "make_config",
    "one_of",
    "settings",
    "without_effect",
]
