"""An index of passages, made and asked on the command line."""
