"""Typed configuration: what an experiment's YAML file may say."""
