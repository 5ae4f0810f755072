"""What a run is: its settings, their defaults and rules, and what may change when it goes on."""

from fedmatch_tf.base.errors import ConfigError
from fedmatch_tf.config.models import MODELS
from fedmatch_tf.config.record import WHAT, Config, changed_settings, make_config, settings
from fedmatch_tf.config.rules import Setting, check_value, flag, without_effect
from fedmatch_tf.config.tables import PROFILES, SCENARIOS

__all__ = [
    "MODELS",
    "PROFILES",
    "SCENARIOS",
    "WHAT",
    "Config",
    "ConfigError",
    "Setting",
    "changed_settings",
    "check_value",
    "flag",
    "make_config",
    "settings",
    "without_effect",
]
