"""Parts of the exporters."""
