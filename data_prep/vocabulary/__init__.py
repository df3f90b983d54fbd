"""Learns WordPiece vocabularies and checks them."""
