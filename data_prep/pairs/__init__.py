"""From pairs of texts to pairs records: filters, token ids."""
