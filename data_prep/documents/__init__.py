"""From documents of text to documents records: sentences, token ids, cuts."""
