"""What the plugin declares, by kind; icml26's spec types and nothing else are imported."""

TASK = "unlearning.language"
PACKAGE = "icml26_plugin_divergence_decoding"
