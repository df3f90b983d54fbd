"""The encoder and the modules that objectives put on top of it."""
