"""The one data format: what a record holds and the manifest that describes a folder of them."""
